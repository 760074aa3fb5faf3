"""What a check is, and what it may see and say. Imports nothing of ours from outside this package."""

from nodetriage.checks.model.check import Check, latest
from nodetriage.checks.model.confidence import Confidence
from nodetriage.checks.model.finding import Finding, Outcome, Scalar
from nodetriage.checks.model.host import (
    FIRST_USER,
    NVIDIA,
    ClockState,
    FsSpace,
    Gpu,
    Host,
    KernelRecord,
    NotRecorded,
    NvLink,
    NvmlFailure,
    PciDevice,
    Process,
    Program,
    RowRemap,
    Unavailable,
)
from nodetriage.checks.model.severity import Severity

__all__ = [
    "FIRST_USER",
    "NVIDIA",
    "Check",
    "ClockState",
    "Confidence",
    "Finding",
    "FsSpace",
    "Gpu",
    "Host",
    "KernelRecord",
    "NotRecorded",
    "NvLink",
    "NvmlFailure",
    "Outcome",
    "PciDevice",
    "Process",
    "Program",
    "RowRemap",
    "Scalar",
    "Severity",
    "Unavailable",
    "latest",
]
