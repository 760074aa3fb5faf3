"""The running machine behind a Host.

Each library is imported where it is first used, so that the worker of another device class does not pay for it.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from nodetriage.agent.machine import boot
from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.checks.model import ClockState, FsSpace, Gpu, KernelRecord, Process, Program, Unavailable

if TYPE_CHECKING:
    from nodetriage.agent.machine.nvml import Library
    from nodetriage.agent.machine.redfish import Client


class LiveMachine:
    """Implements host.Machine on the machine that this process runs on."""

    is_recorded = False

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._quarantined: frozenset[str] = frozenset()  # PCI addresses
        self._programs: Mapping[str, tuple[str, ...]] = {}
        self._nvml: Library | None = None
        self._redfish_settings: RedfishSettings | None = None
        self._redfish: Client | None = None
        self._has_run = False

    def quarantine(self, addresses: frozenset[str]) -> None:
        self._quarantined = addresses

    def call_programs(self, argvs: Mapping[str, tuple[str, ...]], redfish: RedfishSettings | None = None) -> None:
        """The Redfish session lasts while its settings are the same."""
        self._programs = argvs
        if redfish != self._redfish_settings and self._redfish is not None:
            self._redfish.close()
            self._redfish = None
        self._redfish_settings = redfish

    def redfish(self, path: str, keep_s: float) -> str:
        if self._redfish_settings is None:
            raise Unavailable("no [redfish] address")
        if self._redfish is None:
            from nodetriage.agent.machine.redfish import Client

            self._redfish = Client(self._redfish_settings)
        return self._redfish.get(path, keep_s)

    def locate(self, path: str) -> str:
        return path

    locate_link = locate

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def marks(self, folder: str) -> dict[str, int]:
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() for entry in entries}

    def statvfs(self, path: str) -> FsSpace:
        """statvfs(3). Free space is what ordinary users may use; root's reserve is not counted."""
        s = os.statvfs(path)
        size = s.f_frsize or s.f_bsize
        return FsSpace(
            s.f_blocks * size, s.f_bavail * size, s.f_files, s.f_favail, read_only=bool(s.f_flag & os.ST_RDONLY)
        )

    def gpus(self, whole: bool, on_bus: Callable[[], list[str]]) -> tuple[Gpu, ...]:
        if self._nvml is None:
            from nodetriage.agent.machine.nvml import Library

            self._nvml = Library(self._announce, on_bus)
        return self._nvml.inventory(self._quarantined, whole)

    def kernel_log(self) -> Iterable[KernelRecord]:
        """All records of this boot that the kernel still has. Raises OSError where /dev/kmsg cannot be read."""
        from nodetriage.agent.machine import kmsg

        self._announce("read /dev/kmsg")
        return kmsg.whole_log("/dev/kmsg")

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        from nodetriage.agent.machine import commands

        self._has_run = True
        return commands.run((*self._programs.get(argv[0], argv[:1]), *argv[1:]), timeout_s)

    def processes(self) -> tuple[Process, ...]:
        from nodetriage.agent.machine import processes

        return processes.of_users(self._announce, boot.boottime_s())

    def abandoned_programs(self) -> int:
        if not self._has_run:
            return 0
        from nodetriage.agent.machine import commands

        return commands.abandoned()

    def clock(self) -> ClockState:
        from nodetriage.agent.machine import clock

        return clock.state()

    def boottime_s(self) -> float:
        return boot.boottime_s()
