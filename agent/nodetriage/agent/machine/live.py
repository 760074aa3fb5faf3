"""The running machine behind a Host.

Each library is imported where it is first used, so that the worker of another device class does not pay for it.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from nodetriage.agent.machine import boot
from nodetriage.checks.model import ClockState, FsSpace, Gpu, KernelRecord, Process, Program

if TYPE_CHECKING:
    from nodetriage.agent.machine.nvml import Library


class LiveMachine:
    """Implements host.Machine on the machine that this process runs on."""

    is_recorded = False

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._quarantined: frozenset[str] = frozenset()  # PCI addresses
        self._programs: Mapping[str, tuple[str, ...]] = {}
        self._nvml: Library | None = None
        self._has_run = False

    def quarantine(self, addresses: frozenset[str]) -> None:
        self._quarantined = addresses

    def call_programs(self, argvs: Mapping[str, tuple[str, ...]]) -> None:
        self._programs = argvs

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
