"""What a check may see of the machine: the Host protocol and the records that its methods give."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from nodetriage.checks.model.finding import Scalar

T = TypeVar("T")

NVIDIA = 0x10DE  # PCI vendor


class Unavailable(Exception):
    """There is nothing here for this check to look at; its text says what is missing. The outcome is `skipped`."""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg), decoded.

    `at_us` is the record's own stamp in microseconds since boot; -1 where a pasted log carries none.
    """

    seq: int
    at_us: int
    priority: int  # syslog priority, facility * 8 + level; below 8 it is the kernel's own
    text: str  # one record; a newline inside is a real newline
    continues: bool = False  # a piece of a line whose beginning is elsewhere: it may begin with anything


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A function on the PCI bus, from /sys/bus/pci/devices: what stays as it is for as long as it is there."""

    address: str  # dddd:bb:dd.f, lower case
    vendor: int
    device: int
    class_code: int  # 24 bits: class, subclass, interface
    folder: str  # under /sys/devices, where no link has to be followed for each file
    is_virtual: bool = False  # a virtual function of another

    @property
    def is_nvidia_gpu(self) -> bool:
        """VGA or 3D controller (include/linux/pci_ids.h) of that maker."""
        return self.vendor == NVIDIA and self.class_code >> 8 in (0x0300, 0x0302)


class NvmlFailure(enum.StrEnum):
    """Answers of NVML that are themselves facts about the GPU, kept as values."""

    LOST = "gpu_is_lost"
    RESET_REQUIRED = "reset_required"
    UNKNOWN = "unknown"
    IN_USE = "in_use"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    VERSION_MISMATCH = "lib_rm_version_mismatch"
    TIMEOUT = "timeout"
    NOT_ASKED = "not_asked"  # in quarantine: a call about it may never return
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RowRemap:
    """nvmlDeviceGetRemappedRows and nvmlDeviceGetRowRemapperHistogram."""

    correctable_rows: int
    uncorrectable_rows: int
    pending: bool
    failed: bool
    # Banks by how many of their spare rows are left; None where the driver has no histogram.
    banks_max: int | None = None
    banks_high: int | None = None
    banks_partial: int | None = None
    banks_low: int | None = None
    banks_none: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of a GPU. `counters` by NVML's names; what the driver does not count is absent, never 0."""

    link: int
    active: bool
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What NVML says of one GPU. None means the driver does not support the question: that is never a zero.

    `failure` is set where the GPU did not answer; then only `pci` (and `uuid`, if known) can be relied on.
    """

    index: int
    pci: str  # dddd:bb:dd.f, lower case
    uuid: str = ""
    name: str = ""
    failure: NvmlFailure | None = None
    failure_text: str = ""
    row_remap: RowRemap | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)  # calls that gave an odd error, though the GPU answers
    processes: tuple[int, ...] | None = None  # ids of processes with a compute context, those of MIG instances too
    facts: Mapping[str, Scalar] = field(
        default_factory=dict
    )  # further values, by NVML's names, for the checks that ask


@dataclass(frozen=True, slots=True)
class FsSpace:
    """statvfs(3) of one mount, in bytes and inodes."""

    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class ClockState:
    """adjtimex(2), in microseconds. `offset_us` is what is still to be slewed away, not the distance from true time."""

    synchronised: bool
    max_error_us: int
    estimated_error_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """How a child program ended. `stdout` is decoded with replacement characters."""

    status: int
    stdout: str
    stderr: str


class Host(Protocol):
    """The only way a check sees the machine. Paths are absolute, without the root prefix.

    Every method raises OSError as the kernel gives it (ENOENT, EINVAL, EIO...); nothing is turned into a default.
    Before a call that may block for ever, the implementation tells the agent what it is about to do, so that a hang
    can be named.
    """

    def glob(self, pattern: str) -> list[PurePosixPath]:
        """Paths that match, sorted; empty where the folder does not exist."""
        ...

    def exists(self, path: str | PurePosixPath) -> bool: ...

    def text(self, path: str | PurePosixPath) -> str:
        """The file, read whole, decoded as UTF-8 with replacement characters, trailing white space removed."""
        ...

    def ask_once(self, path: str | PurePosixPath) -> str:
        """As `text`. A file that refuses (EINVAL, EOPNOTSUPP) is not asked again, and fails the same way from then on.

        For counters that a driver keeps from restricted functions: it logs a line for each try.
        """
        ...

    def link(self, path: str | PurePosixPath) -> PurePosixPath:
        """Where a symbolic link leads, made absolute and normal."""
        ...

    def statvfs(self, path: str | PurePosixPath) -> FsSpace: ...

    def entries(self, folder: str, describe: Callable[["Host", PurePosixPath], T]) -> Mapping[str, T]:
        """What `describe` tells of each entry of a folder of devices, by name; for what a device does not change.

        Asked until told twice the same, and again when the entry was made anew, as one is that came back. Empty where
        there is no such folder. `describe` is a function of a module: it is what the answers are remembered by.
        """
        ...

    def pci_devices(self) -> tuple[PciDevice, ...]:
        """By address; from `entries`."""
        ...

    def pci_driver(self, device: PciDevice) -> str | None:
        """The driver that has the device now. Raises OSError."""
        ...

    def gpus(self, whole: bool = False) -> tuple[Gpu, ...]:
        """All GPUs that NVML enumerates. Raises Unavailable where there is no NVML or no driver.

        `whole`: with their NVLinks, processes and what else costs many calls; without it that may be None or absent.
        """
        ...

    def kernel_log(self) -> tuple[KernelRecord, ...]:
        """Records since this check's last run that match its pattern, oldest first."""
        ...

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        """Runs a program that only reads. Raises Unavailable if it is not installed, TimeoutError past its time."""
        ...

    def exclude(self, component: str) -> None:
        """The check says that it could not look at this part: its run is not `ok`, however well the others are."""
        ...

    @property
    def excluded(self) -> tuple[str, ...]:
        """Parts that this run could not look at, or was not let (GPUs in quarantine), by their names."""
        ...

    def clock(self) -> ClockState:
        """How true the kernel holds its clock to be. Raises Unavailable where it cannot be asked."""
        ...

    def boottime_s(self) -> float:
        """CLOCK_BOOTTIME, seconds: goes on through suspend, never steps."""
        ...
