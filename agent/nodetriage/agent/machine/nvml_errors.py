"""What NVML's error codes mean: the GPU is faulty, the driver is gone, or this board has no such fact.

Source: the NVML API reference, nvmlReturn_t.
"""

import dataclasses

import pynvml

from nodetriage.checks.model import Gpu, NvmlFailure

# Answers that mean "this driver or board has no such thing".
NOT_THERE = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NO_PERMISSION,  # about this process, not about the GPU
    }
)
# The driver does not know this version of a structure.
OLDER = frozenset({pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, pynvml.NVML_ERROR_INVALID_ARGUMENT})
FAILURES = {
    pynvml.NVML_ERROR_GPU_IS_LOST: NvmlFailure.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: NvmlFailure.RESET_REQUIRED,
    pynvml.NVML_ERROR_UNKNOWN: NvmlFailure.UNKNOWN,
    pynvml.NVML_ERROR_IN_USE: NvmlFailure.IN_USE,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NvmlFailure.DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NvmlFailure.VERSION_MISMATCH,
    pynvml.NVML_ERROR_TIMEOUT: NvmlFailure.TIMEOUT,
}
# These come for every question: the GPU answers nobody.
FAULTY = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
# The driver is gone, or was loaded anew.
STALE = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})


class NvmlError(Exception):
    """NVML as a whole fails; it is not merely absent."""


def not_asked(gpu: Gpu) -> Gpu:
    return dataclasses.replace(gpu, failure=NvmlFailure.NOT_ASKED, failure_text="not asked: in quarantine")


def failed(gpu: Gpu, call: str, error: pynvml.NVMLError) -> Gpu:
    """The GPU with its failure. Raises the error again where it is not about this GPU."""
    if error.value in STALE:
        raise error
    failure = FAILURES.get(error.value, NvmlFailure.OTHER)
    return dataclasses.replace(gpu, failure=failure, failure_text=f"{call}: {error}")
