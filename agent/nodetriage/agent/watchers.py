"""What wakes checks between their timed runs, as descriptors of the event loop: kernel log, mounts, devices, links."""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.agent.core.record_queue import RecordQueue
from nodetriage.agent.machine.kmsg import KernelLog, Overrun, believed
from nodetriage.checks.model import Check

if TYPE_CHECKING:
    from nodetriage.agent.machine.rtnetlink import LinkEvents, LinkState
    from nodetriage.agent.machine.udev import DeviceEvents

REPORT_SETTLE_S = 0.1  # a report comes as many records: a check that joins them waits for the rest
FILE_POLL_S = 0.2  # a regular file (a replayed log) cannot wake anyone
MOUNTS_SETTLE_S = 0.1  # a mount comes as several changes
DEVICES_SETTLE_S = 0.1  # one card is many devices
LINKS_SETTLE_S = 0.2  # the ports of a card change together, and a port's state follows its carrier
LINKS_AGAIN_S = 3.0  # a link that trains anew is up again by then
LINKS_KNOWN = 4096  # interfaces whose carrier is remembered
# What changes the set of devices. "change" is left out: udevd makes one each time a program closes a disk.
DEVICE_ACTIONS = frozenset(("add", "remove", "bind", "unbind", "online", "offline"))
NET = Path("/sys/class/net")
MOUNTS = ("/proc/1/mountinfo", "/proc/self/mountinfo")  # a hardened unit or a container has a view of its own


class KernelLogWatcher:
    """Follows the kernel log: queues each record, calls `wake` with the checks to run, and `lost` after an overrun."""

    def __init__(
        self,
        path: Path,
        accept_user_records: bool,
        record_queue: RecordQueue,
        wake: Callable[[Iterable[str]], None],
        lost: Callable[[], None],
        open_log: Callable[[str, int | None], KernelLog] = KernelLog,
    ) -> None:
        self.trouble = ""
        self.overruns = 0
        self.lost_records = 0
        self._path = path
        self._accept_user_records = accept_user_records
        self._record_queue = record_queue
        self._wake = wake
        self._lost = lost
        self._open_log = open_log
        self._log: KernelLog | None = None
        self._again: asyncio.TimerHandle | None = None

    @property
    def newest_seq(self) -> int:
        """Of the records read; -1 where none was."""
        return self._record_queue.position.scanned

    def start(self) -> None:
        """Reads all records after the queue's position, then follows the log. `trouble` says what prevents it."""
        loop = asyncio.get_running_loop()
        try:
            self._log = self._open_log(str(self._path), self._record_queue.read_after)
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror or error}"
            return
        self._read()
        if self.trouble:
            return
        try:
            loop.add_reader(self._log.fd, self._read)
        except PermissionError:  # epoll(7): a regular file
            self._poll()

    def stop(self) -> None:
        if self._again:
            self._again.cancel()
        if self._log:
            with contextlib.suppress(ValueError):
                asyncio.get_running_loop().remove_reader(self._log.fd)
            self._log.close()
            self._log = None

    def take_losses(self) -> tuple[int, int]:
        """Overruns and lost records since the last call."""
        losses = self.overruns, self.lost_records
        self.overruns = self.lost_records = 0
        return losses

    def _read(self) -> None:
        if self._log is None:
            return
        woken: set[str] = set()
        try:
            records = self._log.read()
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror or error}"
            self.stop()
            return
        for record in records:
            if isinstance(record, Overrun):
                self.overruns += 1
                self.lost_records += record.lost
            elif believed(record, self._accept_user_records):
                woken.update(self._record_queue.offer(record))
        joining = woken & self._record_queue.joining
        self._wake(woken - joining)
        if joining:
            asyncio.get_running_loop().call_later(REPORT_SETTLE_S, self._wake, joining)
        if self.overruns:
            self._lost()

    def _poll(self) -> None:
        self._read()
        self._again = asyncio.get_running_loop().call_later(FILE_POLL_S, self._poll)


class MountWatcher:
    """Calls `changed` when a mount comes, goes or changes (proc_pid_mountinfo(5): POLLERR and POLLPRI)."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._fds: list[int] = []
        self._poll: select.epoll | None = None

    def start(self) -> None:
        # An epoll inside the loop's: the loop itself only asks for "readable", which the mount table always is.
        self._poll = select.epoll()
        for path in MOUNTS:
            with contextlib.suppress(OSError):
                self._fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                self._poll.register(self._fds[-1], select.EPOLLERR | select.EPOLLPRI)
        self._poll.poll(0)
        asyncio.get_running_loop().add_reader(self._poll.fileno(), self._read)

    def stop(self) -> None:
        if self._poll:
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None
            for fd in self._fds:
                os.close(fd)
            self._fds.clear()

    def _read(self) -> None:
        if self._poll:
            self._poll.poll(0)  # empties it; its answer may be nothing, as the kernel tells each change only once
            self._changed()


class DeviceWatcher:
    """Calls `changed` with the subsystems in which devices came or went, as soon as no more do."""

    def __init__(self, subsystems: Collection[str], changed: Callable[[Collection[str]], None]) -> None:
        self.trouble = ""
        self._subsystems = frozenset(subsystems)
        self._changed = changed
        self._events: DeviceEvents | None = None
        self._touched: set[str] = set()
        self._settled: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """What prevents it is `trouble`: checks then find in their rounds what came or went."""
        from nodetriage.agent.machine.udev import DeviceEvents  # libudev is loaded where it is used

        try:
            self._events = DeviceEvents(self._subsystems)
            asyncio.get_running_loop().add_reader(self._events.fd, self._read)
        except OSError as error:
            self.trouble = f"kernel device events: {error.strerror or error}"

    def stop(self) -> None:
        if self._settled:
            self._settled.cancel()
        if self._events:
            asyncio.get_running_loop().remove_reader(self._events.fd)
            self._events = None

    def _read(self) -> None:
        if self._events is None:
            return
        try:
            self._touched.update(e.subsystem for e in self._events.read() if e.action in DEVICE_ACTIONS)
        except OSError:  # more came than the socket holds: anything may have changed
            self._touched.update(self._subsystems)
        if self._touched and self._settled is None:
            self._settled = asyncio.get_running_loop().call_later(DEVICES_SETTLE_S, self._tell)

    def _tell(self) -> None:
        touched, self._touched, self._settled = self._touched, set(), None
        self._changed(touched)


def is_port(name: str) -> bool:
    """Whether the interface has a device or is a bond. The interfaces of containers come and go with jobs."""
    folder = NET / name
    return name not in ("", ".", "..") and "/" not in name and any((folder / n).exists() for n in ("device", "bonding"))


class LinkWatcher:
    """Calls `changed` soon after the carrier of a port came or went, and once more when a new training is over."""

    def __init__(self, changed: Callable[[], None], follows: Callable[[str], bool] = is_port) -> None:
        self.trouble = ""
        self._changed = changed
        self._follows = follows
        self._events: LinkEvents | None = None
        self._carriers: dict[int, bool] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """What prevents it is `trouble`: checks then find in their rounds what changed."""
        from nodetriage.agent.machine.rtnetlink import LinkEvents  # loaded where it is used

        try:
            self._events = LinkEvents()
            asyncio.get_running_loop().add_reader(self._events.fd, self._read)
        except OSError as error:
            self.trouble = f"kernel link events: {error.strerror or error}"

    def stop(self) -> None:
        for timer in (self._soon, self._again):
            if timer:
                timer.cancel()
        if self._events:
            asyncio.get_running_loop().remove_reader(self._events.fd)
            self._events.close()
            self._events = None

    def _read(self) -> None:
        if self._events is None:
            return
        try:
            changes = [self._is_change(link) for link in self._events.read()]
        except OSError:  # more came than the socket holds: anything may have changed
            changes = [True]
        if any(changes):
            loop = asyncio.get_running_loop()
            self._soon = self._soon or loop.call_later(LINKS_SETTLE_S, self._tell_soon)
            if self._again:
                self._again.cancel()
            self._again = loop.call_later(LINKS_AGAIN_S, self._tell_again)

    def _is_change(self, link: "LinkState") -> bool:
        before = self._carriers.pop(link.index, None)
        if len(self._carriers) >= LINKS_KNOWN:
            del self._carriers[next(iter(self._carriers))]
        self._carriers[link.index] = link.carrier
        return before is not link.carrier and self._follows(link.name)

    def _tell_soon(self) -> None:
        self._soon = None
        self._changed()

    def _tell_again(self) -> None:
        self._again = None
        self._changed()


class Watchers:
    """All together: `wake` gets "mounts", "links" or "udev:SUBSYSTEM" (Check.wakes_on) when a change is over."""

    def __init__(self, checks: Iterable[Check[Any, Any]], wake: Callable[[str], None]) -> None:
        asked = {source.removeprefix("udev:") for c in checks for source in c.wakes_on if source.startswith("udev:")}
        self._mounts = MountWatcher(self._mounts_changed)
        self._devices = DeviceWatcher(asked, self._devices_changed)
        self._links = LinkWatcher(lambda: wake("links"))
        self._wake = wake

    @property
    def trouble(self) -> str:
        return "; ".join(filter(None, (self._devices.trouble, self._links.trouble)))

    def start(self) -> None:
        self._mounts.start()
        self._devices.start()
        self._links.start()

    def stop(self) -> None:
        self._mounts.stop()
        self._devices.stop()
        self._links.stop()

    def _mounts_changed(self) -> None:
        asyncio.get_running_loop().call_later(MOUNTS_SETTLE_S, self._wake, "mounts")

    def _devices_changed(self, subsystems: Collection[str]) -> None:
        for subsystem in sorted(subsystems):
            self._wake(f"udev:{subsystem}")
