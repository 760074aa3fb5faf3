"""The process that forks workers: small, single-threaded, with everything imported that a worker needs.

Two reasons. Memory: a worker shares each page that it does not write. No exec: a worker can be replaced while the root
file system is frozen. process.py starts it as
`python -m nodetriage.agent.workers.forkserver AGENT_PID MODULE:ATTRIBUTE`, with its end of a SOCK_SEQPACKET pair as
fd 0.

    agent -> "CLASS", fds: channel, doing page        start a worker
    here  -> "started PID", fd: pidfd                 the answer
    here  -> "ended PID STATUS"                       as waitpid(2) gives it

When a worker dies, the programs that it started fall to this process, which kills them.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from nodetriage.agent.workers import memory, worker
from nodetriage.checks.model import Check

PR_SET_PDEATHSIG = 1  # prctl(2)
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    os.umask(0o077)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # descriptors that the agent inherited are not ours
    die_with(int(argv[1]))
    checks = worker.catalogue(argv[2])
    importlib.import_module("nodetriage.agent.machine.nvml")  # 3 MB that only the GPU worker would have
    agent = socket.socket(fileno=0)
    _libc.prctl(PR_SET_NAME, b"nodetriage-fork", 0, 0, 0)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    workers: set[int] = set()
    memory.freeze()
    gc.disable()

    def reap(_signal: int, _frame: object) -> None:
        ended = _ended()
        workers.difference_update(pid for pid, _ in ended)
        for orphan in _children() - workers:  # before the message: the agent may end this process then
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
        for pid, status in ended:
            agent.send(f"ended {pid} {status}".encode())

    signal.signal(signal.SIGCHLD, reap)
    while True:
        message, fds, _flags, _address = socket.recv_fds(agent, 256, 2)
        if not message:
            return 0  # the agent has ended; PR_SET_PDEATHSIG ends the workers
        _fork(agent, message.decode(), fds, checks, workers)


def die_with(parent: int) -> None:
    """Makes the kernel send SIGKILL to this process when its parent ends, or ends it now if the parent has ended."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _children() -> set[int]:
    """From proc_tid_children(5); empty where the kernel is built without it: an orphan then ends by itself."""
    try:
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    except FileNotFoundError:
        return set()


def _ended() -> list[tuple[int, int]]:
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended.append((pid, status))


def _fork(
    agent: socket.socket, device_class: str, fds: list[int], checks: tuple[Check[Any, Any], ...], workers: set[int]
) -> None:
    here = os.getpid()
    # Block SIGCHLD until the pidfd is open: a reaped process has no pidfd.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        _become_worker(agent, here, device_class, fds, checks)
    workers.add(pid)
    pidfd = os.pidfd_open(pid)
    try:
        socket.send_fds(agent, [f"started {pid}".encode()], [pidfd])
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for fd in (pidfd, *fds):
            os.close(fd)


def _become_worker(
    agent: socket.socket, forkserver: int, device_class: str, fds: list[int], checks: tuple[Check[Any, Any], ...]
) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        die_with(forkserver)
        _libc.prctl(PR_SET_NAME, f"nodetriage-{device_class}"[:15].encode(), 0, 0, 0)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        agent.detach()
        os.dup2(null, 0)  # fd 0 was the fork server's channel to the agent
        os.dup2(2, 1)  # a library that prints must not write into the protocol
        gc.enable()
        mine = tuple(check for check in checks if check.worker == device_class)
        doing = worker.Doing(fds[1])
        os.close(fds[1])
        worker.serve(socket.socket(fileno=fds[0]), mine, doing)
        status = 0
    except BaseException:  # noqa: BLE001 a forked process must not go on as a second fork server
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
