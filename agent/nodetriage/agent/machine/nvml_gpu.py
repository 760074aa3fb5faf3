"""What NVML says of one GPU, as facts: the questions of nvml_facts.py, each with its own way to have no answer.

Source: the NVML API reference. What the driver does not support is absent, never zero.
"""

import ctypes
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from nodetriage.agent.machine.nvml_errors import FAULTY, NOT_THERE, OLDER, STALE, failed
from nodetriage.agent.machine.nvml_facts import (
    C2C_FIELDS,
    FIELD_VALUE,
    FIELDS,
    LINK_COUNTERS,
    LINK_STATE,
    MOST_C2C_LINKS,
    QUESTIONS,
    QUICK_QUESTIONS,
    UP_STATES,
    WHOLE_FIELDS,
    Question,
    number,
)
from nodetriage.checks.model import Gpu, NvLink, RowRemap, Scalar

MOST_LINKS = int(pynvml.NVML_NVLINK_MAX_LINKS)  # NVLinks that a GPU can have


class GpuReader:
    """Asks NVML about GPUs, and remembers what this driver and board do not know, to ask for that only once."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._unsupported: dict[str, set[int]] = {}  # fields, by the GPU's name
        self._versions: dict[str, int] = {}  # call -> which of its structures this driver knows
        self._refused: dict[str, str] = {}  # of the present GPU: call -> error

    def facts(self, gpu: Gpu, handle: Any, whole: bool) -> Gpu:
        facts: dict[str, Scalar] = {}
        self._refused = {}
        try:
            call = "nvmlDeviceGetRemappedRows"
            gpu = dataclasses.replace(gpu, row_remap=self._row_remap(gpu, handle))
            answers: dict[tuple[Any, ...], Any] = {}
            for question in QUESTIONS if whole else QUICK_QUESTIONS:
                call = question.call
                key = (call, question.arguments)
                if key not in answers:
                    answers[key] = self._answer(question, gpu, handle)
                if answers[key] is not None:
                    facts[question.fact] = question.pick(answers[key])
            call = "nvmlDeviceGetFieldValues"
            facts |= self._fields(gpu, handle, WHOLE_FIELDS if whole else FIELDS)
            if whole:
                facts |= self._c2c(gpu, handle, facts)
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
            return self._filled(question, gpu, handle)
        if not question.refusals:
            return self._perhaps(question.call, gpu, handle, *question.arguments)
        try:
            self.ask(question.call, gpu, handle, *question.arguments)
        except pynvml.NVMLError as error:
            return error.value if error.value in question.refusals else self._no_answer(question.call, error)
        return pynvml.NVML_SUCCESS

    def _filled(self, question: Question, gpu: Gpu, handle: Any) -> Any:
        """The structure of the newest version that this driver knows."""
        for name in question.fills[self._versions.get(question.call, 0) :]:
            structure = getattr(pynvml, name)()
            try:
                self.ask(question.call, gpu, handle, ctypes.byref(structure))
            except pynvml.NVMLError as error:
                if error.value in OLDER:
                    self._versions[question.call] = min(
                        self._versions.get(question.call, 0) + 1, len(question.fills) - 1
                    )
                    continue
                return self._no_answer(question.call, error)
            return structure
        return None

    def _nvlinks(self, gpu: Gpu, handle: Any, facts: Mapping[str, Scalar]) -> tuple[NvLink, ...] | None:
        """All links of the GPU, connected or not; None where NVML does not know."""
        states = self._link_states(gpu, handle, range(min(int(facts.get("nvlink_count", MOST_LINKS)), MOST_LINKS)))
        active = (link for link, state in states.items() if state in UP_STATES)
        # A driver knows a third of the counters; ask for the others only once.
        counters = [(n, f) for n, f in LINK_COUNTERS if f not in self._unsupported.get(gpu.name, ())]
        scoped = tuple((f"{link} {name}", (field, link)) for link in active for name, field in counters)
        counted = self._fields(gpu, handle, scoped) if scoped else {}
        links = (
            NvLink(
                link,
                state in UP_STATES,
                {n: int(counted[k]) for n, _ in LINK_COUNTERS if (k := f"{link} {n}") in counted},
            )
            for link, state in states.items()
        )
        return tuple(links) if states else None

    def _c2c(self, gpu: Gpu, handle: Any, facts: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """The links between GPU and CPU, added up; without those that sleep. Empty where there are none."""
        links = range(min(int(facts.get("c2c_count", 0)), MOST_C2C_LINKS))
        scoped = tuple((f"{link} {name}", (field, link)) for link in links for name, field in C2C_FIELDS)
        read = self._fields(gpu, handle, scoped) if scoped else {}
        awake = [link for link in links if not read.get(f"{link} asleep")]
        found: dict[str, Scalar] = {}
        for name in ("errors", "replays", "replays_b2b"):
            if counts := [int(read[f"{link} {name}"]) for link in links if f"{link} {name}" in read]:
                found[f"c2c_{name}"] = sum(counts)
        if states := [read[f"{link} active"] for link in awake if f"{link} active" in read]:
            found["c2c_down"] = sum(1 for state in states if not state)
        if speeds := [
            int(read[f"{link} mbps"]) for link in awake if read.get(f"{link} active") and f"{link} mbps" in read
        ]:
            found |= {"c2c_mbps_least": min(speeds), "c2c_mbps_most": max(speeds)}
        return found

    def _link_states(self, gpu: Gpu, handle: Any, links: range) -> dict[int, int]:
        """By link, in one call; where the driver lacks that field, in a call a link."""
        scoped = tuple((str(link), (LINK_STATE, link)) for link in links)
        if scoped and LINK_STATE not in self._unsupported.get(gpu.name, ()):
            states = self._fields(gpu, handle, scoped)
            if states:  # so the driver knows the field, whatever it says of links that lead nowhere
                self._unsupported.get(gpu.name, set()).discard(LINK_STATE)
                return {int(link): int(state) for link, state in states.items()}
        found = {}
        for link in links:
            try:
                found[link] = int(self.ask("nvmlDeviceGetNvLinkState", gpu, handle, link))
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_INVALID_ARGUMENT:  # there is no such link
                    self._no_answer("nvmlDeviceGetNvLinkState", error)
        return found

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
            return self.ask(call, gpu, *arguments)
        except pynvml.NVMLError as error:
            return self._no_answer(call, error)

    def _no_answer(self, call: str, error: pynvml.NVMLError) -> None:
        """Records a failed call as refused; the GPU may answer other calls."""
        if error.value in FAULTY | STALE:
            raise error
        if error.value not in NOT_THERE:
            self._refused[call] = str(error)

    def ask(self, call: str, gpu: Gpu, *arguments: Any) -> Any:
        self._announce(f"{call} {gpu.pci}")
        return getattr(pynvml, call)(*arguments)
