"""The machine as a check sees it: read calls only, below one root. "/" is the running machine, else a recorded tree."""

import copy
import errno
import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

from nodetriage.agent.machine.files import read_whole
from nodetriage.agent.machine.live import LiveMachine
from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.checks.model import Check, ClockState, FsSpace, Gpu, KernelRecord, NvmlFailure, PciDevice, Program
from nodetriage.checks.model.host import Process
from nodetriage.checks.model.kernel_rules import KernelRules, matcher
from nodetriage.checks.readers.pcie import functions

Announce = Callable[[str], None]
T = TypeVar("T")

PCI_DEVICES = "/sys/bus/pci/devices"
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a folder. `settled`: two descriptions were the same; a new device may not be complete at first."""

    mark: int
    described: Any
    settled: bool = False


class Machine(Protocol):
    """What lies behind a Host: the running machine or a recorded one. Paths are the check's, without the root."""

    is_recorded: bool

    def quarantine(self, addresses: frozenset[str]) -> None:
        """Do not ask NVML about the GPUs at these PCI addresses from now on."""

    def call_programs(self, argvs: Mapping[str, tuple[str, ...]], redfish: RedfishSettings | None = None) -> None:
        """Use these first words and arguments for the programs that checks name, and this Redfish service."""

    def redfish(self, path: str, keep_s: float) -> str: ...

    def locate(self, path: str) -> str:
        """The path to give to the kernel. Raises the OSError that was recorded for it."""

    def locate_link(self, path: str) -> str:
        """Likewise, but for the link itself where the path is a link."""

    def names(self, folder: str) -> list[str]:
        """The names in the folder. Raises OSError."""

    def marks(self, folder: str) -> dict[str, int]:
        """The same names, each with a number that changes when the entry is created anew. Raises OSError."""

    def statvfs(self, path: str) -> FsSpace: ...

    def gpus(self, whole: bool, on_bus: Callable[[], list[str]]) -> tuple[Gpu, ...]:
        """`on_bus` gives the PCI addresses of all NVIDIA GPUs, for GPUs that NVML cannot name."""

    def kernel_log(self) -> Iterable[KernelRecord]: ...
    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program: ...
    def processes(self) -> tuple[Process, ...]: ...
    def abandoned_programs(self) -> int:
        """How many programs that `run` started still sleep in the kernel, where no signal ends them."""

    def clock(self) -> ClockState: ...
    def boottime_s(self) -> float: ...


class Host:
    """Implements nodetriage.checks.model.Host.

    Before each call that may block, the host passes the name of the call to `announce`, so that a hang has a name. That
    happens for every file, so `announce` must be cheap. `records` are the kernel records that the agent passes in; None
    means the whole log.
    """

    def __init__(
        self,
        root: Path | str = "/",
        *,
        announce: Announce | None = None,
        records: tuple[KernelRecord, ...] | None = None,
        pattern: str | KernelRules | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._announce: Announce = announce or _silent
        self._machine = machine or machine_at(Path(root), self._announce)
        self._records = records
        self._pattern = pattern
        self._excluded: dict[str, None] = {}
        self._refused: dict[str, OSError] = {}  # shared by all hosts that for_check gives
        self._entries: dict[tuple[str, Callable[..., Any]], dict[str, _Entry]] = {}  # likewise; by folder and name

    def for_check(self, check: Check[Any, Any], records: tuple[KernelRecord, ...] | None = None) -> "Host":
        """The same machine with this check's kernel records. Costs a microsecond."""
        other = copy.copy(self)
        other._pattern = check.kernel_pattern
        other._records = records
        other._excluded = {}
        return other

    def quarantine(self, addresses: frozenset[str]) -> None:
        """No longer asks NVML about the GPUs at these PCI addresses: after Xid 79, 119 or 120 each call may hang."""
        self._machine.quarantine(addresses)

    def call_programs(self, argvs: Mapping[str, tuple[str, ...]], redfish: RedfishSettings | None = None) -> None:
        """Sets how this site calls the programs that checks name, and where the BMC's Redfish service is."""
        self._machine.call_programs(argvs, redfish)

    @property
    def is_tree(self) -> bool:
        """Whether this is a recorded machine, in which no call can hang."""
        return self._machine.is_recorded

    def glob(self, pattern: str) -> list[PurePosixPath]:
        found = [PurePosixPath("/")]
        parts = PurePosixPath("/", pattern).parts[1:]
        for i, component in enumerate(parts):
            last = i + 1 == len(parts)
            if not any(c in component for c in "*?["):
                found = [p / component for p in found if not last or self.exists(p / component)]
                continue
            found = [p / name for p in found for name in fnmatch.filter(self._names(p), component)]
        return sorted(found)

    def _names(self, folder: PurePosixPath) -> list[str]:
        path = str(folder)
        self._announce(f"list {path}")
        try:
            return self._machine.names(path)
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise _about(path, error) from None

    def exists(self, path: str | PurePosixPath) -> bool:
        name = str(path)
        self._announce(f"stat {name}")
        try:
            os.stat(self._machine.locate(name))
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise _about(name, error) from None
        return True

    def text(self, path: str | PurePosixPath) -> str:
        name = str(path)
        self._announce(f"read {name}")
        try:
            data = read_whole(self._machine.locate(name))
        except OSError as error:
            raise _about(name, error) from None
        return data.decode("utf-8", "replace").rstrip()

    def ask_once(self, path: str | PurePosixPath) -> str:
        name = str(path)
        if name in self._refused:
            raise self._refused[name]
        try:
            return self.text(path)
        except OSError as error:
            if error.errno in _REFUSALS:
                self._refused[name] = error
            raise

    def link(self, path: str | PurePosixPath) -> PurePosixPath:
        self._announce(f"readlink {path}")
        try:
            target = os.readlink(self._machine.locate_link(str(path)))
        except OSError as error:
            raise _about(str(path), error) from None
        return PurePosixPath(os.path.normpath(os.path.join(os.path.dirname(path), target)))

    def statvfs(self, path: str | PurePosixPath) -> FsSpace:
        self._announce(f"statvfs {path}")
        return self._machine.statvfs(str(path))

    def entries(self, folder: str, describe: Callable[[Any, PurePosixPath], T]) -> dict[str, T]:
        self._announce(f"list {folder}")
        try:
            marks = self._machine.marks(folder)
        except OSError as error:
            if error.errno in _ABSENT:
                return {}
            raise _about(folder, error) from None
        known = self._entries.setdefault((folder, describe), {})
        for name in known.keys() - marks.keys():
            del known[name]
        for name, mark in marks.items():
            before = known.get(name)
            if before is not None and before.mark != mark:
                before = None  # another device
            if before is None or not before.settled:
                described = describe(self, PurePosixPath(folder, name))
                known[name] = _Entry(mark, described, settled=before is not None and described == before.described)
        return {name: known[name].described for name in sorted(known)}

    def pci_devices(self) -> tuple[PciDevice, ...]:
        found = self.entries(PCI_DEVICES, functions.device)
        for name in (name for name, device in found.items() if device is None):
            self.exclude(name.lower())
        return tuple(sorted((d for d in found.values() if d is not None), key=lambda device: device.address))

    def pci_driver(self, device: PciDevice) -> str | None:
        return functions.driver(self, device)

    def gpus(self, whole: bool = False) -> tuple[Gpu, ...]:
        gpus = self._machine.gpus(whole, self._nvidia_gpus)
        self._excluded.update((gpu.pci, None) for gpu in gpus if gpu.failure is NvmlFailure.NOT_ASKED)
        return gpus

    def _nvidia_gpus(self) -> list[str]:
        return [device.address for device in self.pci_devices() if device.is_nvidia_gpu]

    def processes(self) -> tuple[Process, ...]:
        return self._machine.processes()

    def exclude(self, component: str) -> None:
        self._excluded[component] = None

    @property
    def excluded(self) -> tuple[str, ...]:
        return tuple(self._excluded)

    def kernel_log(self) -> tuple[KernelRecord, ...]:
        records: Iterable[KernelRecord] = self._machine.kernel_log() if self._records is None else self._records
        if self._pattern is None:
            return tuple(records)
        ours = matcher(self._pattern)
        return tuple(record for record in records if ours.match(record.text))

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        self._announce(f"run {' '.join(argv)}")
        return self._machine.run(argv, timeout_s)

    def redfish(self, path: str, keep_s: float = 0.0) -> str:
        self._announce(f"GET {path}")
        return self._machine.redfish(path, keep_s)

    @property
    def abandoned_programs(self) -> int:
        """How many programs that `run` started still sleep in the kernel, where no signal ends them."""
        return self._machine.abandoned_programs()

    def clock(self) -> ClockState:
        return self._machine.clock()

    def boottime_s(self) -> float:
        return self._machine.boottime_s()


def machine_at(root: Path, announce: Announce) -> Machine:
    """The running machine for "/", a recorded tree for any other folder."""
    if str(root) == "/":
        return LiveMachine(announce)
    from nodetriage.agent.machine.recorded import RecordedMachine

    return RecordedMachine(root)


def _about(path: str, error: OSError) -> OSError:
    """The same error with the check's own path, which differs from the path in a recorded tree."""
    return OSError(error.errno, error.strerror, path)


def _silent(what: str) -> None:
    """Announces to nobody."""
