"""The running machine, as what lies behind a Host. Libraries are loaded where they are used: a worker of another class
never pays for them."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from nodetriage.checks.model import ClockState, FsSpace, Gpu, KernelRecord, Program

if TYPE_CHECKING:
    from nodetriage.agent.machine.nvml import Library


class LiveMachine:
    """The machine that this process runs on."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self.quarantined: frozenset[str] = frozenset()  # PCI addresses
        self.programs: Mapping[str, tuple[str, ...]] = {}
        self._nvml: Library | None = None

    def locate(self, path: str) -> str:
        return path

    locate_link = locate

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def marks(self, folder: str) -> dict[str, int]:
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() for entry in entries}

    def statvfs(self, path: str) -> FsSpace:
        """statvfs(3); free means free for users, not for root."""
        s = os.statvfs(path)
        size = s.f_frsize or s.f_bsize
        return FsSpace(
            s.f_blocks * size, s.f_bavail * size, s.f_files, s.f_favail, read_only=bool(s.f_flag & os.ST_RDONLY)
        )

    def gpus(self, whole: bool) -> tuple[Gpu, ...]:
        if self._nvml is None:
            from nodetriage.agent.machine.nvml import Library

            self._nvml = Library(self._announce, self._nvidia_gpus)
        return self._nvml.inventory(self.quarantined, whole)

    def _nvidia_gpus(self) -> list[str]:
        from nodetriage.agent.machine.host import Host

        devices = Host(machine=self, announce=self._announce).pci_devices()
        return [d.address for d in devices if d.is_nvidia_gpu]

    def kernel_log(self) -> Iterable[KernelRecord]:
        """All of this boot that the kernel still has. Raises OSError where /dev/kmsg may not be read."""
        from nodetriage.agent.machine import kmsg

        self._announce("read /dev/kmsg")
        return kmsg.whole_log("/dev/kmsg")

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        from nodetriage.agent.machine import commands

        return commands.run((*self.programs.get(argv[0], argv[:1]), *argv[1:]), timeout_s)

    def clock(self) -> ClockState:
        from nodetriage.agent.machine import clock

        return clock.state()

    def boottime_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
