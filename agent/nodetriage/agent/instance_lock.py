"""One agent for each state directory: a lock that the kernel releases however the process ends."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

# A disk in one of these states must not keep the agent from starting: the agent is there to report it.
_FAULTY_DISK = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class StateInUse(Exception):
    """Another agent uses the state directory. The text is one line for the operator."""


def take(state_dir: Path, run_dir: Path) -> int:
    """Locks the state directory until this process ends; where its disk is faulty, `run_dir` instead.

    Returns the descriptor of the lock. Raises StateInUse, OSError.
    """
    try:
        return lock(state_dir)
    except OSError as error:
        if error.errno not in _FAULTY_DISK:
            raise
        return lock(run_dir)


def lock(folder: Path) -> int:
    """Raises StateInUse, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise StateInUse(f"{folder}: in use by another agent (pid {pid}); set another agent.state_dir here") from None
    with contextlib.suppress(OSError):  # the pid is only for people: a full disk must not stop the agent
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
