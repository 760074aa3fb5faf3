"""What wakes checks between their rounds: the kernel's log and the mount table, as descriptors of the event loop."""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Iterable
from pathlib import Path

from nodetriage.agent.inbox import Inbox
from nodetriage.agent.kmsg import KernelLog, Overrun, believed

FILE_POLL_S = 0.2  # a regular file (a replayed log) cannot wake anyone
MOUNTS = ("/proc/1/mountinfo", "/proc/self/mountinfo")  # a hardened unit or a container has a view of its own


class KernelLogSource:
    """Follows the log: each record into the inbox, the checks that it concerns to `wake`; `lost` after an overrun."""

    def __init__(
        self,
        path: Path,
        accept_user_records: bool,
        inbox: Inbox,
        wake: Callable[[Iterable[str]], None],
        lost: Callable[[], None],
        open_log: Callable[[str, int | None], KernelLog] = KernelLog,
    ) -> None:
        self.trouble = ""
        self.overruns = 0
        self.lost_records = 0
        self._path = path
        self._accept_user_records = accept_user_records
        self._inbox = inbox
        self._wake = wake
        self._lost = lost
        self._open_log = open_log
        self._log: KernelLog | None = None
        self._again: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Reads all that is new since the inbox's position, then follows. What prevents it is `trouble`."""
        loop = asyncio.get_running_loop()
        try:
            self._log = self._open_log(str(self._path), self._inbox.read_after)
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror or error}"
            return
        self._hear()
        if self.trouble:
            return
        try:
            loop.add_reader(self._log.fd, self._hear)
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

    def _hear(self) -> None:
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
                woken.update(self._inbox.offer(record))
        self._wake(woken)
        if self.overruns:
            self._lost()

    def _poll(self) -> None:
        self._hear()
        self._again = asyncio.get_running_loop().call_later(FILE_POLL_S, self._poll)


class MountSource:
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
        asyncio.get_running_loop().add_reader(self._poll.fileno(), self._hear)

    def stop(self) -> None:
        if self._poll:
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None
            for fd in self._fds:
                os.close(fd)
            self._fds.clear()

    def _hear(self) -> None:
        if self._poll:
            self._poll.poll(0)  # empties it; its answer may be nothing, as the kernel tells each change only once
            self._changed()
