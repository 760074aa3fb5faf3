"""What a check may see of the machine: the Host protocol and the records that its methods give."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from nodetriage.checks.model.finding import Scalar

T = TypeVar("T")

FIRST_USER = 1000  # uid of the first user who is no service (login.defs(5), UID_MIN)
NVIDIA = 0x10DE  # PCI vendor


class Unavailable(Exception):
    """This machine has nothing for this check to read; the text says what is missing. The outcome is `skipped`."""


class NotRecorded(Unavailable):
    """The recorded tree lacks what the running machine had: this says nothing about the machine."""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg), decoded.

    `at_us` is the record's own stamp in microseconds since boot; -1 where a pasted log carries none.
    """

    seq: int
    at_us: int
    priority: int  # of syslog: facility * 8 + level; below 8 the kernel itself wrote it
    text: str  # one record; a newline inside is a real newline
    continues: bool = False  # a piece of a line whose beginning is elsewhere: it may begin with anything


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A function on the PCI bus, from /sys/bus/pci/devices: what does not change while it is there."""

    address: str  # dddd:bb:dd.f, lower case
    vendor: int
    device: int
    class_code: int  # 24 bits: class, subclass, interface
    folder: str  # under /sys/devices, so that no read follows a link
    is_virtual: bool = False  # a virtual function (SR-IOV)

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is a VGA or 3D controller (include/linux/pci_ids.h) of NVIDIA."""
        return self.vendor == NVIDIA and self.class_code >> 8 in (0x0300, 0x0302)


class NvmlFailure(enum.StrEnum):
    """Errors of NVML that are facts about the GPU: values, not exceptions."""

    LOST = "gpu_is_lost"
    RESET_REQUIRED = "reset_required"
    UNKNOWN = "unknown"
    IN_USE = "in_use"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    VERSION_MISMATCH = "lib_rm_version_mismatch"
    TIMEOUT = "timeout"
    EXCLUDED = "excluded"  # the driver leaves this GPU out by its own setting: no fault
    NOT_ASKED = "not_asked"  # the GPU is in quarantine, because a call about it may never return
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RowRemap:
    """Memory rows of one GPU: nvmlDeviceGetRemappedRows, nvmlDeviceGetRowRemapperHistogram."""

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
    """One NVLink of a GPU. `counters` are by NVML's names; one that the driver does not have is absent, never 0."""

    link: int
    active: bool
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML describes it. None: the driver does not support the call; it is never a 0.

    `failure` is set where the GPU did not answer; then only `pci` and, where it is known, `uuid` mean something.
    """

    index: int
    pci: str  # dddd:bb:dd.f, lower case
    uuid: str = ""
    name: str = ""
    failure: NvmlFailure | None = None
    failure_text: str = ""
    row_remap: RowRemap | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    refused: Mapping[str, str] = field(
        default_factory=dict
    )  # calls that gave an unexpected error, though the GPU answers
    processes: tuple[int, ...] | None = None  # ids of processes with a compute context, also on MIG instances
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
    """adjtimex(2), in microseconds. `offset_us` is what the kernel still has to slew, not the clock's error."""

    synchronised: bool
    max_error_us: int
    estimated_error_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """How a child program ended. Its output is decoded as UTF-8 with replacement characters."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a user (uid from FIRST_USER on). `name` is its comm: at most 15 characters, chosen by the user."""

    pid: int
    parent: int
    uid: int
    name: str
    state: str  # as proc(5) has it: D sleeps uninterruptibly
    started_s: float  # CLOCK_BOOTTIME
    cpu_s: float
    memory_bytes: int  # resident
    group: str  # path of its control group
    devices: tuple[str, ...] = ()  # the devices of accelerators and of RDMA that it has open


class Host(Protocol):
    """The only way a check sees the machine. Paths are absolute, without the root prefix.

    Every method raises OSError as the kernel gives it (ENOENT, EINVAL, EIO...); none turns an error into a default.
    Before a call that may never return, the implementation tells the agent what it calls, so that the agent can name
    the hang.
    """

    def glob(self, pattern: str) -> list[PurePosixPath]:
        """Paths that match, sorted; empty where the folder does not exist."""
        ...

    def exists(self, path: str | PurePosixPath) -> bool: ...

    def text(self, path: str | PurePosixPath) -> str:
        """The whole file as UTF-8 with replacement characters, without white space at its end."""
        ...

    def ask_once(self, path: str | PurePosixPath) -> str:
        """As `text`, but a file that refuses once (EINVAL, EOPNOTSUPP) is not read again and fails the same way.

        For counters that a driver hides from restricted functions: it logs a line for each read.
        """
        ...

    def link(self, path: str | PurePosixPath) -> PurePosixPath:
        """The target of a symbolic link, absolute and normalised."""
        ...

    def statvfs(self, path: str | PurePosixPath) -> FsSpace: ...

    def entries(self, folder: str, describe: Callable[["Host", PurePosixPath], T]) -> Mapping[str, T]:
        """What `describe` returns for each entry of a folder of devices, by name; for what does not change on a device.

        The host remembers an answer once two calls gave the same, until the entry is created anew, as when a device
        comes back. Empty where there is no such folder. `describe` is a function of a module, which is its key.
        """
        ...

    def pci_devices(self) -> tuple[PciDevice, ...]:
        """All PCI functions, by address, remembered as with `entries`. It excludes what does not say what it is."""
        ...

    def pci_driver(self, device: PciDevice) -> str | None:
        """The driver to which the device is bound now; None where it has none. Raises OSError."""
        ...

    def gpus(self, whole: bool = False) -> tuple[Gpu, ...]:
        """All GPUs that NVML lists. Raises Unavailable where there is no NVML or no driver.

        `whole`: also with NVLinks, processes and all else that takes many calls; else these may be None or absent.
        """
        ...

    def kernel_log(self) -> tuple[KernelRecord, ...]:
        """The records since this check's last run that match its pattern, oldest first."""
        ...

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        """Runs a program that only reads. Raises Unavailable if it is not installed, TimeoutError if it is late."""
        ...

    def processes(self) -> tuple[Process, ...]:
        """The processes of users, at most 4096, the oldest first. Never reads a command line, which can block."""

    def redfish(self, path: str, keep_s: float = 0.0) -> str:
        """What the BMC's Redfish service has at a path below /redfish/v1, as JSON; with `keep_s`, not older than that.

        Raises Unavailable where the site names no service, FileNotFoundError where it has no such resource,
        TimeoutError where it is late or busy, other OSError and ValueError where it refuses or cannot be trusted.
        """
        ...

    def exclude(self, component: str) -> None:
        """Notes that the check could not read this component. The run is then not `ok`, even where the others are."""
        ...

    @property
    def excluded(self) -> tuple[str, ...]:
        """The components that this run could not read, or must not (GPUs in quarantine)."""
        ...

    def clock(self) -> ClockState:
        """The state of the kernel's clock. Raises Unavailable where it cannot be read."""
        ...

    def boottime_s(self) -> float:
        """CLOCK_BOOTTIME in seconds: it counts suspend too, and never steps."""
        ...
