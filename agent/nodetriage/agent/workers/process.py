"""Worker processes as the agent sees them: start, talk, kill, notice their end. Nothing here waits for a child."""

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import sys
from collections import deque

from nodetriage.agent.workers import worker

LINE_LIMIT_BYTES = 16 << 20  # of one reply
START_LIMIT_S = 10.0  # for the fork server to import and fork, on a busy node


class StartFailed(Exception):
    """No worker could be started; the text says why."""


class WorkerProcess:
    """One worker process. Its pidfd sets `ended`; `status_known` is set once the fork server has reported how
    it ended, or has ended itself."""

    def __init__(
        self, pid: int, pidfd: int, doing: worker.Doing, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.pid = pid
        self.doing = doing
        self.reader = reader
        self.writer = writer
        self.ended = asyncio.Event()
        self.status_known = asyncio.Event()
        self.status: int | None = None  # as waitpid(2) gives it
        self._pidfd = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._end)

    def kill(self) -> None:
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def forget(self) -> None:
        """Closes the agent's descriptors. A process in uninterruptible sleep is left to the kernel."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self.writer.close()
        self.doing.close()

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.ended.set()

    def how_it_ended(self) -> str:
        if self.status is None:
            return "ended"
        if os.WIFSIGNALED(self.status):
            return f"was killed by {signal.Signals(os.WTERMSIG(self.status)).name}"
        return f"ended with status {os.WEXITSTATUS(self.status)}"


class ForkServer:
    """The agent's side of forkserver.py. Started when the first worker is wanted, again if it should end."""

    def __init__(self, catalogue: str) -> None:
        self._catalogue = catalogue
        self._socket: socket.socket | None = None
        self._pid = 0
        self._waiting: deque[asyncio.Future[tuple[int, int]]] = deque()
        self._children: dict[int, WorkerProcess] = {}

    @property
    def pid(self) -> int:
        return self._pid

    async def start(self, device_class: str) -> WorkerProcess:
        """A new worker. Raises StartFailed."""
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        page = os.memfd_create("doing")
        answer: asyncio.Future[tuple[int, int]] = loop.create_future()
        try:
            os.ftruncate(page, mmap.PAGESIZE)
            if self._socket is None:
                self._launch()
            assert self._socket is not None
            self._waiting.append(answer)
            socket.send_fds(self._socket, [device_class.encode()], [there.fileno(), page])
            pid, pidfd = await asyncio.wait_for(answer, START_LIMIT_S)
            doing = worker.Doing(page)
        except asyncio.CancelledError:
            here.close()
            raise
        except (OSError, TimeoutError) as error:
            here.close()
            self.stop()
            raise StartFailed(f"no worker could be started: {error or 'the fork server did not answer'}") from error
        finally:
            there.close()
            os.close(page)
        reader, writer = await asyncio.open_connection(sock=here, limit=LINE_LIMIT_BYTES)
        child = self._children[pid] = WorkerProcess(pid, pidfd, doing, reader, writer)
        return child

    def stop(self) -> None:
        """Ends the fork server and, by PR_SET_PDEATHSIG, its workers. Reaps it if it has ended by then."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        for child in self._children.values():
            child.status_known.set()
        self._children.clear()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the fork server ended"))

    def _launch(self) -> None:
        with contextlib.suppress(ChildProcessError):  # an earlier one, if any
            os.waitpid(self._pid or -1, os.WNOHANG)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        with there:
            # posix_spawn, not the subprocess module: nothing here may ever wait for the child. All other descriptors
            # of the agent are close-on-exec (PEP 446).
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "nodetriage.agent.workers.forkserver", str(os.getpid()), self._catalogue],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, there.fileno(), 0)],
                setsid=True,  # Ctrl-C at a terminal is for the agent alone
                setsigmask=(),
            )
        self._socket = here
        asyncio.get_running_loop().add_reader(here.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            message, fds, _flags, _address = socket.recv_fds(self._socket, 256, 1)
        except BlockingIOError:
            return
        except OSError:
            message, fds = b"", []
        words = message.decode().split()
        if not words:
            self.stop()
        elif words[0] == "started":
            waiting = self._waiting.popleft()
            if waiting.done():
                os.close(fds[0])  # the one who asked has given up; its channel is closed, so the worker ends
            else:
                waiting.set_result((int(words[1]), fds[0]))
        elif child := self._children.pop(int(words[1]), None):
            child.status = int(words[2])
            child.status_known.set()
