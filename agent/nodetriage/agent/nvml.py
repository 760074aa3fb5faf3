"""The only importer of pynvml: NVML's handles and error codes to frozen Gpu records.

Source: the NVML API reference. What the driver does not support is None or absent, never zero; an answer that says the
GPU is sick is kept as a value. What is asked is a table: gpu_facts.py.
"""

import ctypes
import dataclasses
import time
from collections.abc import Callable, Collection
from typing import Any

import pynvml

from nodetriage.agent.gpu_facts import FIELDS, QUESTIONS, Question
from nodetriage.checks.model import Gpu, NvmlFailure, RowRemap, Scalar, Unavailable

Announce = Callable[[str], None]

FRESH_S = 0.5  # checks that run one after the other share one look at the GPUs

# Answers that mean "this driver or board has no such thing".
_NOT_THERE = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_DATA,
    }
)
_FAILURES = {
    pynvml.NVML_ERROR_GPU_IS_LOST: NvmlFailure.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: NvmlFailure.RESET_REQUIRED,
    pynvml.NVML_ERROR_UNKNOWN: NvmlFailure.UNKNOWN,
    pynvml.NVML_ERROR_IN_USE: NvmlFailure.IN_USE,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NvmlFailure.DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NvmlFailure.VERSION_MISMATCH,
    pynvml.NVML_ERROR_TIMEOUT: NvmlFailure.TIMEOUT,
}
# The driver is gone, or was loaded anew under us.
_STALE = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})


class NvmlError(Exception):
    """NVML as a whole answers with an error that is no mere absence; the text names the call."""


class Library:
    """NVML, initialised when first asked and kept so."""

    def __init__(self, announce: Announce, bus: Callable[[], list[str]], clock: Callable[[], float] = time.monotonic):
        """`bus` gives the PCI addresses of all NVIDIA GPUs, for those that NVML cannot name."""
        self._announce = announce
        self._bus = bus
        self._clock = clock
        self._ready = False
        self._count = -1
        self._known: dict[int, Gpu] = {}  # index -> its last names, for the day it does not answer
        self._last: tuple[float, frozenset[str], tuple[Gpu, ...]] | None = None

    def inventory(self, quarantined: Collection[str] = ()) -> tuple[Gpu, ...]:
        """All GPUs that NVML enumerates; those at `quarantined` PCI addresses are listed but not asked anything.

        Raises Unavailable where there is no library or no driver, NvmlError where NVML itself fails.
        """
        now, apart = self._clock(), frozenset(quarantined)
        if self._last is not None and self._last[1] == apart and now - self._last[0] < FRESH_S:
            return self._last[2]
        self._last = None
        try:
            gpus = self._look(apart)
        except pynvml.NVMLError as error:
            if error.value not in _STALE:
                raise NvmlError(f"NVML: {error}") from error
            gpus = self._look_again(apart)
        self._last = (now, apart, gpus)
        return gpus

    def _look_again(self, apart: frozenset[str]) -> tuple[Gpu, ...]:
        """After a driver reload the old initialisation is void."""
        self._forget()
        try:
            return self._look(apart)
        except pynvml.NVMLError as error:
            self._forget()
            if error.value in _STALE:
                raise Unavailable(f"NVML: {error}") from error
            raise NvmlError(f"NVML: {error}") from error

    def _forget(self) -> None:
        self._known.clear()
        if self._ready:
            self._ready = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return  # it was not up: what we wanted

    def _look(self, apart: frozenset[str]) -> tuple[Gpu, ...]:
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
            self._known.clear()  # the numbers have moved
            self._count = count
        return tuple(self._gpu(index, count, apart) for index in range(count))

    def _no_start(self, error: pynvml.NVMLError) -> tuple[Gpu, ...]:
        """What NVML's refusal to start says of each GPU on the bus; a library that does not fit the driver, mostly."""
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            raise Unavailable(f"NVML: {error}") from error
        on_bus = self._bus()
        if not on_bus:
            raise error
        return tuple(_failed(Gpu(index, pci), "nvmlInit", error) for index, pci in enumerate(on_bus))

    def _gpu(self, index: int, count: int, apart: frozenset[str]) -> Gpu:
        gpu = self._known.get(index) or Gpu(index, self._address(index, count))
        if gpu.pci in apart:
            return dataclasses.replace(gpu, failure=NvmlFailure.OTHER, failure_text="not asked: in quarantine")
        call = "nvmlDeviceGetHandleByIndex"
        try:
            handle = self._ask(call, gpu, index)
            call = "nvmlDeviceGetPciInfo"
            gpu = dataclasses.replace(gpu, pci=address(self._ask(call, gpu, handle).busId))
            if gpu.pci in apart:
                return dataclasses.replace(gpu, failure=NvmlFailure.OTHER, failure_text="not asked: in quarantine")
            call = "nvmlDeviceGetUUID"
            gpu = dataclasses.replace(gpu, uuid=str(self._ask(call, gpu, handle)))
            call = "nvmlDeviceGetName"
            gpu = dataclasses.replace(gpu, name=str(self._ask(call, gpu, handle)))
        except pynvml.NVMLError as error:
            return _failed(gpu, call, error)
        self._known[index] = gpu
        return self._facts(gpu, handle)

    def _address(self, index: int, count: int) -> str:
        """NVML numbers GPUs by PCI address, so where all are there the order tells which one is silent."""
        on_bus = self._bus()
        return on_bus[index] if len(on_bus) == count else f"nvml-index-{index}"

    def _facts(self, gpu: Gpu, handle: Any) -> Gpu:
        facts: dict[str, Scalar] = {}
        call = ""
        try:
            call = "nvmlDeviceGetRemappedRows"
            gpu = dataclasses.replace(gpu, row_remap=self._row_remap(gpu, handle))
            answers: dict[tuple[Any, ...], Any] = {}
            for question in QUESTIONS:
                call = question.call
                key = (call, question.arguments)
                if key not in answers:
                    answers[key] = self._answer(question, gpu, handle)
                answer = answers[key]
                if answer is not None:
                    facts[question.fact] = question.pick(answer)
            call = "nvmlDeviceGetFieldValues"
            facts |= self._fields(gpu, handle)
        except pynvml.NVMLError as error:
            gpu = _failed(gpu, call, error)  # a sick GPU is not asked further
        return dataclasses.replace(gpu, facts=facts)

    def _answer(self, question: Question, gpu: Gpu, handle: Any) -> Any:
        if not question.fills:
            return self._perhaps(question.call, gpu, handle, *question.arguments)
        structure = getattr(pynvml, question.fills)()
        done = self._perhaps(question.call, gpu, handle, ctypes.byref(structure))
        return None if done is None else structure

    def _row_remap(self, gpu: Gpu, handle: Any) -> RowRemap | None:
        rows = self._perhaps("nvmlDeviceGetRemappedRows", gpu, handle)
        if rows is None:
            return None
        remap = RowRemap(rows[0], rows[1], pending=bool(rows[2]), failed=bool(rows[3]))
        banks = self._perhaps("nvmlDeviceGetRowRemapperHistogram", gpu, handle)
        if banks is None:
            return remap
        return dataclasses.replace(
            remap,
            banks_max=banks.max,
            banks_high=banks.high,
            banks_partial=banks.partial,
            banks_low=banks.low,
            banks_none=banks.none,
        )

    def _fields(self, gpu: Gpu, handle: Any) -> dict[str, Scalar]:
        """Each field has an error of its own; one that the driver does not know is left out."""
        values = self._perhaps("nvmlDeviceGetFieldValues", gpu, handle, [field for _, field in FIELDS])
        found: dict[str, Scalar] = {}
        for (fact, _), value in zip(FIELDS, values or (), strict=False):
            if value.nvmlReturn == pynvml.NVML_SUCCESS:
                found[fact] = _number(value)
            elif value.nvmlReturn in _FAILURES:
                raise pynvml.NVMLError(value.nvmlReturn)
        return found

    def _perhaps(self, call: str, gpu: Gpu, *arguments: Any) -> Any:
        """The answer, None where there is no such thing here. Raises NVMLError for all else."""
        try:
            return self._ask(call, gpu, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _NOT_THERE:
                return None
            raise

    def _ask(self, call: str, gpu: Gpu, *arguments: Any) -> Any:
        self._announce(f"{call} {gpu.pci}")
        return getattr(pynvml, call)(*arguments)


def _failed(gpu: Gpu, call: str, error: pynvml.NVMLError) -> Gpu:
    """Raises the error on where it is not about this GPU."""
    if error.value in _STALE:
        raise error
    failure = _FAILURES.get(error.value, NvmlFailure.OTHER)
    return dataclasses.replace(gpu, failure=failure, failure_text=f"{call}: {error}")


def _number(value: Any) -> int | float:
    """An nvmlFieldValue_t by its own type."""
    names = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    number: int | float = getattr(value.value, names.get(value.valueType, "ullVal"))
    return number


def address(bus_id: str | bytes) -> str:
    """NVML's 00000000:1A:00.0 as the kernel writes it: 0000:1a:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
