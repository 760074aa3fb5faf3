"""Reads all GPUs through NVML, as frozen Gpu records.

Source: the NVML API reference. What the driver does not support is None or absent, never zero; an answer that says the
GPU is faulty is kept as a value. nvml_facts.py is the table of what is asked, nvml_errors.py what each error means.
"""

import ctypes
import dataclasses
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from nodetriage.agent.machine.nvml_errors import FAULTY, NOT_THERE, STALE, NvmlError, failed, not_asked
from nodetriage.agent.machine.nvml_facts import (
    FIELD_VALUE,
    FIELDS,
    LINK_COUNTERS,
    QUESTIONS,
    WHOLE_FIELDS,
    Question,
    address,
    number,
)
from nodetriage.checks.model import Gpu, NvLink, RowRemap, Scalar, Unavailable

Announce = Callable[[str], None]

FRESH_S = 0.5  # checks that run one after the other share one inventory
MOST_LINKS = 18  # NVLinks that a GPU can have (NVML_NVLINK_MAX_LINKS)


class Library:
    """NVML: initialised at the first question, and then kept initialised."""

    def __init__(self, announce: Announce, bus: Callable[[], list[str]], clock: Callable[[], float] = time.monotonic):
        """`bus` gives the PCI addresses of all NVIDIA GPUs, for GPUs that NVML cannot name."""
        self._announce = announce
        self._bus = bus
        self._clock = clock
        self._ready = False
        self._count = -1
        self._known: dict[int, Gpu] = {}  # index -> its last names, for when it does not answer
        self._last: _Look | None = None
        self._unsupported: dict[str, set[int]] = {}  # counters of links, by the GPU's name
        self._refused: dict[str, str] = {}  # of the present GPU: call -> error

    def inventory(self, quarantined: Collection[str] = (), whole: bool = False) -> tuple[Gpu, ...]:
        """All GPUs that NVML enumerates. Lists those at `quarantined` PCI addresses without a call about them.

        `whole`: with what costs many calls. Raises Unavailable where there is no library or no driver, NvmlError where
        NVML itself fails.
        """
        apart = frozenset(quarantined)
        if self._last is not None and self._last.serves(apart, whole, self._clock()):
            return self._last.gpus
        self._last = None
        try:
            gpus = self._look(apart, whole)
        except pynvml.NVMLError as error:
            if error.value not in STALE:
                raise NvmlError(f"NVML: {error}") from error
            gpus = self._look_again(apart, whole)
        self._last = _Look(self._clock(), apart, whole, gpus)
        return gpus

    def _look_again(self, apart: frozenset[str], whole: bool) -> tuple[Gpu, ...]:
        """Initialises NVML anew: after a reload of the driver the old initialisation is void."""
        self._forget()
        try:
            return self._look(apart, whole)
        except pynvml.NVMLError as error:
            self._forget()
            if error.value in STALE:
                raise Unavailable(f"NVML: {error}") from error
            raise NvmlError(f"NVML: {error}") from error

    def _forget(self) -> None:
        self._known.clear()
        self._unsupported.clear()
        if self._ready:
            self._ready = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return  # it was not initialised: nothing to do

    def _look(self, apart: frozenset[str], whole: bool) -> tuple[Gpu, ...]:
        if not self._ready:
            self._announce("nvmlInit")
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                return self._no_start(error)
            self._ready = True
        self._announce("nvmlDeviceGetCount")
        count = pynvml.nvmlDeviceGetCount()
        if count != self._count:
            self._known.clear()  # the indices may have changed
            self._count = count
        if apart - {gpu.pci for gpu in self._known.values()} and (on_bus := self._bus()):
            return tuple(self._by_address(on_bus, apart, whole))
        return tuple(self._gpu(index, self._known.get(index), count, apart, whole) for index in range(count))

    def _by_address(self, on_bus: list[str], apart: frozenset[str], whole: bool) -> Iterator[Gpu]:
        """Finds GPUs by address: the index of a GPU in quarantine is not known, so no index is safe to ask for."""
        call = "nvmlDeviceGetHandleByPciBusId"
        for gpu in itertools.starmap(Gpu, enumerate(on_bus)):
            if gpu.pci in apart:
                yield not_asked(gpu)
                continue
            try:
                yield self._named(gpu, self._ask(call, gpu, gpu.pci.encode()), whole)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_NOT_FOUND:  # NVML hides this GPU from this process
                    yield failed(gpu, call, error)

    def _no_start(self, error: pynvml.NVMLError) -> tuple[Gpu, ...]:
        """Each GPU on the bus with NVML's error at the start; mostly the library does not fit the driver."""
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            raise Unavailable(f"NVML: {error}") from error
        if not (on_bus := self._bus()):
            raise error
        return tuple(failed(Gpu(index, pci), "nvmlInit", error) for index, pci in enumerate(on_bus))

    def _gpu(self, index: int, known: Gpu | None, count: int, apart: frozenset[str], whole: bool) -> Gpu:
        gpu = known or Gpu(index, self._address(index, count))
        if gpu.pci in apart:
            return not_asked(gpu)
        call = "nvmlDeviceGetHandleByIndex"
        try:
            handle = self._ask(call, gpu, index)
            call = "nvmlDeviceGetPciInfo"
            gpu = dataclasses.replace(gpu, pci=address(self._ask(call, gpu, handle).busId))
        except pynvml.NVMLError as error:
            return failed(gpu, call, error)
        gpu = not_asked(gpu) if gpu.pci in apart else self._named(gpu, handle, whole)
        if gpu.name or gpu.pci in apart:
            self._known[index] = Gpu(index, gpu.pci, gpu.uuid, gpu.name)
        return gpu

    def _named(self, gpu: Gpu, handle: Any, whole: bool) -> Gpu:
        call = "nvmlDeviceGetUUID"
        try:
            gpu = dataclasses.replace(gpu, uuid=str(self._ask(call, gpu, handle)))
            gpu = dataclasses.replace(gpu, name=str(self._ask(call := "nvmlDeviceGetName", gpu, handle)))
        except pynvml.NVMLError as error:
            return failed(gpu, call, error)
        return self._facts(gpu, handle, whole)

    def _address(self, index: int, count: int) -> str:
        """The address of a silent GPU. NVML numbers by PCI address, so the order on the bus shows it."""
        on_bus = self._bus()
        return on_bus[index] if len(on_bus) == count else f"nvml-index-{index}"

    def _facts(self, gpu: Gpu, handle: Any, whole: bool) -> Gpu:
        facts: dict[str, Scalar] = {}
        self._refused = {}
        try:
            call = "nvmlDeviceGetRemappedRows"
            gpu = dataclasses.replace(gpu, row_remap=self._row_remap(gpu, handle))
            answers: dict[tuple[Any, ...], Any] = {}
            for question in QUESTIONS if whole else ():
                call = question.call
                key = (call, question.arguments)
                if key not in answers:
                    answers[key] = self._answer(question, gpu, handle)
                if answers[key] is not None:
                    facts[question.fact] = question.pick(answers[key])
            call = "nvmlDeviceGetFieldValues"
            facts |= self._fields(gpu, handle, WHOLE_FIELDS if whole else FIELDS)
            if whole:
                call = "nvmlDeviceGetNvLinkState"
                gpu = dataclasses.replace(gpu, nvlinks=self._nvlinks(gpu, handle, facts))
        except pynvml.NVMLError as error:
            gpu = failed(gpu, call, error)  # no more questions to a faulty GPU
        pids = facts.pop("processes", None)
        processes = tuple(map(int, str(pids).split())) if pids is not None else None
        return dataclasses.replace(gpu, processes=processes, facts=facts, refused=self._refused)

    def _answer(self, question: Question, gpu: Gpu, handle: Any) -> Any:
        """The value for `question.pick`; None where this driver or board has no such fact."""
        if question.fills:
            structure = getattr(pynvml, question.fills)()
            done = self._perhaps(question.call, gpu, handle, ctypes.byref(structure))
            return None if done is None else structure
        if not question.refusals:
            return self._perhaps(question.call, gpu, handle, *question.arguments)
        try:
            self._ask(question.call, gpu, handle, *question.arguments)
        except pynvml.NVMLError as error:
            return error.value if error.value in question.refusals else self._no_answer(question.call, error)
        return pynvml.NVML_SUCCESS

    def _nvlinks(self, gpu: Gpu, handle: Any, facts: Mapping[str, Scalar]) -> tuple[NvLink, ...] | None:
        """All links of the GPU, connected or not; None where NVML does not know."""
        states = {}
        for link in range(min(int(facts.get("nvlink_count", MOST_LINKS)), MOST_LINKS)):
            try:
                states[link] = self._ask("nvmlDeviceGetNvLinkState", gpu, handle, link)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_INVALID_ARGUMENT:  # there is no such link
                    self._no_answer("nvmlDeviceGetNvLinkState", error)
        active = (link for link, state in states.items() if state)
        # A driver knows a third of the counters; ask for the others only once.
        counters = [(n, f) for n, f in LINK_COUNTERS if f not in self._unsupported.get(gpu.name, ())]
        scoped = tuple((f"{link} {name}", (field, link)) for link in active for name, field in counters)
        counted = self._fields(gpu, handle, scoped) if scoped else {}
        links = (
            NvLink(
                link,
                bool(state),
                {n: int(counted[k]) for n, _ in LINK_COUNTERS if (k := f"{link} {n}") in counted},
            )
            for link, state in states.items()
        )
        return tuple(links) if states else None

    def _row_remap(self, gpu: Gpu, handle: Any) -> RowRemap | None:
        rows = self._perhaps("nvmlDeviceGetRemappedRows", gpu, handle)
        if rows is None:
            return None
        remap = RowRemap(rows[0], rows[1], pending=bool(rows[2]), failed=bool(rows[3]))
        banks = self._perhaps("nvmlDeviceGetRowRemapperHistogram", gpu, handle)
        if banks is None:
            return remap
        kinds = ("max", "high", "partial", "low", "none")
        return dataclasses.replace(remap, **{f"banks_{kind}": getattr(banks, kind) for kind in kinds})

    def _fields(self, gpu: Gpu, handle: Any, wanted: tuple[tuple[str, Any], ...]) -> dict[str, Scalar]:
        """The fields that the driver knows. Each field has an error of its own."""
        values = self._perhaps("nvmlDeviceGetFieldValues", gpu, handle, [field for _, field in wanted])
        found: dict[str, Scalar] = {}
        answers = FIELD_VALUE.iter_unpack(bytes(values)) if values else ()
        for (fact, field), (_, _, _, _, kind, error, value) in zip(wanted, answers, strict=False):
            if error == pynvml.NVML_SUCCESS:
                found[fact] = number(kind, value)
            elif error in FAULTY:
                raise pynvml.NVMLError(error)
            elif error == pynvml.NVML_ERROR_NOT_SUPPORTED and isinstance(field, tuple):
                self._unsupported.setdefault(gpu.name, set()).add(field[0])
        return found

    def _perhaps(self, call: str, gpu: Gpu, *arguments: Any) -> Any:
        """The answer; None where there is none. Raises NVMLError where the GPU or the driver answers nobody."""
        try:
            return self._ask(call, gpu, *arguments)
        except pynvml.NVMLError as error:
            return self._no_answer(call, error)

    def _no_answer(self, call: str, error: pynvml.NVMLError) -> None:
        """Records a failed call as refused; the GPU may answer other calls."""
        if error.value in FAULTY | STALE:
            raise error
        if error.value not in NOT_THERE:
            self._refused[call] = str(error)

    def _ask(self, call: str, gpu: Gpu, *arguments: Any) -> Any:
        self._announce(f"{call} {gpu.pci}")
        return getattr(pynvml, call)(*arguments)


@dataclass(frozen=True, slots=True)
class _Look:
    """One inventory: when it ended, and how it was made."""

    at_s: float
    apart: frozenset[str]
    whole: bool
    gpus: tuple[Gpu, ...]

    def serves(self, apart: frozenset[str], whole: bool, now_s: float) -> bool:
        return self.apart == apart and (self.whole or not whole) and now_s - self.at_s < FRESH_S
