"""Reads all GPUs through NVML, as frozen Gpu records.

Source: the NVML API reference. What the driver does not support is None or absent, never zero; an answer that says the
GPU is faulty is kept as a value. nvml_gpu.py asks about one GPU, nvml_facts.py is the table of what it asks,
nvml_errors.py what each error means.

NVML keeps the device files open from its start to its shutdown, and while a process has them open, the driver refuses
resets, MIG changes and its own unloading. So each look ends with a shutdown, and the agent is in nobody's way.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pynvml

from nodetriage.agent.machine.nvml_errors import STALE, NvmlError, failed, not_asked
from nodetriage.agent.machine.nvml_facts import address
from nodetriage.agent.machine.nvml_gpu import GpuReader
from nodetriage.checks.model import Gpu, NvmlFailure, Unavailable

Announce = Callable[[str], None]

FRESH_S = 0.5  # checks that run one after the other share one inventory


class Library:
    """NVML: initialised for each look, and shut down after it."""

    def __init__(self, announce: Announce, bus: Callable[[], list[str]], clock: Callable[[], float] = time.monotonic):
        """`bus` gives the PCI addresses of all NVIDIA GPUs, for GPUs that NVML cannot name."""
        self._announce = announce
        self._bus = bus
        self._clock = clock
        self._ready = False
        self._count = -1
        self._known: dict[int, Gpu] = {}  # index -> its last names, for when it does not answer
        self._last: _Look | None = None
        self._reader = GpuReader(announce)
        self._driver = ""  # version of the driver that `_reader` knows
        self._excluded: tuple[tuple[str, str], ...] | None = None  # address and UUID; None: not asked yet

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
                self.release()
                raise NvmlError(f"NVML: {error}") from error
            gpus = self._look_again(apart, whole)
        self._last = _Look(self._clock(), apart, whole, gpus)
        # Without persistence mode the driver would start a GPU anew at each look, so NVML then stays open.
        if all(gpu.facts.get("persistence_mode", 1) for gpu in gpus):
            self.release()
        return gpus

    def release(self) -> None:
        """Closes the device files: from now on a reset or a reload of the driver does not meet us."""
        if self._ready:
            self._ready = False
            self._announce("nvmlShutdown")
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return  # it was not initialised: nothing to do

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
        self._driver = ""
        self.release()

    def _look(self, apart: frozenset[str], whole: bool) -> tuple[Gpu, ...]:
        if not self._ready:
            self._announce("nvmlInit")
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                return self._no_start(error)
            self._ready = True
            self._started()
        self._announce("nvmlDeviceGetCount")
        count = pynvml.nvmlDeviceGetCount()
        if count != self._count:
            self._known.clear()  # the indices may have changed
            self._count = count
        if apart - {gpu.pci for gpu in self._known.values()} and (on_bus := self._bus()):
            return (*self._by_address(on_bus, apart, whole), *self._left_out())
        seen = tuple(self._gpu(index, self._known.get(index), count, apart, whole) for index in range(count))
        return (*seen, *self._left_out())

    def _started(self) -> None:
        """What another driver answered before is void; which GPUs the driver leaves out may have changed anyway."""
        self._excluded = None
        self._announce("nvmlSystemGetDriverVersion")
        try:
            version = str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            if error.value in STALE:
                raise
            version = ""  # not known: then nothing is remembered from one look to the next
        if not version or version != self._driver:
            self._driver = version
            self._known.clear()
            self._reader = GpuReader(self._announce)

    def _left_out(self) -> Iterator[Gpu]:
        """GPUs that the driver leaves out by its own setting: NVML numbers them apart from the others."""
        if self._excluded is None:
            self._excluded = ()
            try:
                self._announce("nvmlGetExcludedDeviceCount")
                infos = map(pynvml.nvmlGetExcludedDeviceInfoByIndex, range(pynvml.nvmlGetExcludedDeviceCount()))
                self._excluded = tuple((address(info.pci.busId), _text(info.uuid)) for info in infos)
            except pynvml.NVMLError as error:
                if error.value in STALE:
                    raise
        for pci, uuid in self._excluded:
            yield Gpu(-1, pci, uuid, failure=NvmlFailure.EXCLUDED, failure_text="the driver leaves it out")

    def _by_address(self, on_bus: list[str], apart: frozenset[str], whole: bool) -> Iterator[Gpu]:
        """Finds GPUs by address: the index of a GPU in quarantine is not known, so no index is safe to ask for."""
        call = "nvmlDeviceGetHandleByPciBusId"
        for gpu in itertools.starmap(Gpu, enumerate(on_bus)):
            if gpu.pci in apart:
                yield not_asked(gpu)
                continue
            try:
                yield self._named(gpu, self._reader.ask(call, gpu, gpu.pci.encode()), whole)
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
            handle = self._reader.ask(call, gpu, index)
            call = "nvmlDeviceGetPciInfo"
            gpu = dataclasses.replace(gpu, pci=address(self._reader.ask(call, gpu, handle).busId))
        except pynvml.NVMLError as error:
            return failed(gpu, call, error)
        gpu = not_asked(gpu) if gpu.pci in apart else self._named(gpu, handle, whole)
        if gpu.name or gpu.pci in apart:
            self._known[index] = Gpu(index, gpu.pci, gpu.uuid, gpu.name)
        return gpu

    def _named(self, gpu: Gpu, handle: Any, whole: bool) -> Gpu:
        call = "nvmlDeviceGetUUID"
        try:
            gpu = dataclasses.replace(gpu, uuid=str(self._reader.ask(call, gpu, handle)))
            gpu = dataclasses.replace(gpu, name=str(self._reader.ask(call := "nvmlDeviceGetName", gpu, handle)))
        except pynvml.NVMLError as error:
            return failed(gpu, call, error)
        return self._reader.facts(gpu, handle, whole)

    def _address(self, index: int, count: int) -> str:
        """The address of a silent GPU. NVML numbers by PCI address, so the order on the bus shows it."""
        on_bus = self._bus()
        return on_bus[index] if len(on_bus) == count else f"nvml-index-{index}"


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


@dataclass(frozen=True, slots=True)
class _Look:
    """One inventory: when it ended, and how it was made."""

    at_s: float
    apart: frozenset[str]
    whole: bool
    gpus: tuple[Gpu, ...]

    def serves(self, apart: frozenset[str], whole: bool, now_s: float) -> bool:
        return self.apart == apart and (self.whole or not whole) and now_s - self.at_s < FRESH_S
