"""One agent a state directory: the lock, which the kernel lets go of however the process ends."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

# A disk in this state must not keep the agent from starting: it is one of the faults that it is there to tell of.
_SICK_DISK = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class StateInUse(Exception):
    """Another agent holds the state directory; the text is one line for the operator."""


def hold(state_dir: Path, run_dir: Path) -> int:
    """Takes the state directory for this process until it ends; where its disk is ill, the directory in /run instead.

    Raises StateInUse, OSError.
    """
    try:
        return lock(state_dir)
    except OSError as error:
        if error.errno not in _SICK_DISK:
            raise
        return lock(run_dir)


def lock(folder: Path) -> int:
    """Raises StateInUse, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise StateInUse(f"{folder}: in use by another agent (pid {holder}); give this one its own state_dir") from None
    with contextlib.suppress(OSError):  # the number is a courtesy: a full disk must not stop the agent
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
