"""Whether a GPU had work between two looks: what shows only under load is not over because the GPU idles. Pure.

Source: nvmlDeviceGetCurrentClocksEventReasons, bit nvmlClocksEventReasonGpuIdle.
"""

from nodetriage.checks.model import Gpu
from nodetriage.checks.readers.gpu import number

IDLE_BIT = 0x1


def is_idle(gpu: Gpu) -> bool:
    """False too where NVML does not tell: then every look counts as one under load."""
    reasons = number(gpu, "clocks_event_reasons")
    return reasons is not None and bool(reasons & IDLE_BIT)


def lacks_load(idle_before: bool, idle_now: bool) -> bool:
    """Whether the time between two looks shows nothing of a rate: a storm ends at a look with load and without it."""
    return idle_before or idle_now
