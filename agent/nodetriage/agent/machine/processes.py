"""The processes of users: the only user of psutil (decision 9 says why, and what it costs).

psutil has the process tree, CPU times and memory. The control group and the open devices it has not, so these come from
/proc. Its `name()` is not used: for a name of 15 characters it reads the command line, which blocks its reader while
the process sleeps uninterruptibly.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import psutil

from nodetriage.checks.model import FIRST_USER, Process

MOST = 4096
GROUP_LIMIT = 512  # characters of a control group's path
DESCRIPTORS_LIMIT = 4096  # of one process
_NOBODY = 65534
_DEVICES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/infiniband/")
_STATES = {psutil.STATUS_DISK_SLEEP: "D", psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X"}
_VANISHED = (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError)


def of_users(announce: Callable[[str], None], boottime_s: float, proc: str = "/proc") -> tuple[Process, ...]:
    """All of them, the oldest first; one that ends meanwhile is left out. Raises OSError, psutil.Error."""
    announce(f"list {proc}")
    found = []
    boot_s = psutil.boot_time()
    for pid in psutil.pids():
        with contextlib.suppress(*_VANISHED):
            uid = os.stat(f"{proc}/{pid}").st_uid
            if FIRST_USER <= uid != _NOBODY:
                announce(f"read {proc}/{pid}")
                found.append(_described(pid, uid, boot_s, boottime_s, proc))
        if len(found) == MOST:
            break
    return tuple(sorted(found, key=lambda process: (process.started_s, process.pid)))


def _described(pid: int, uid: int, boot_s: float, boottime_s: float, proc: str) -> Process:
    process = psutil.Process(pid)
    with process.oneshot():
        times = process.cpu_times()
        return Process(
            pid,
            process.ppid(),
            uid,
            Path(f"{proc}/{pid}/comm").read_bytes()[:64].decode("utf-8", "replace").rstrip("\n"),
            _STATES.get(process.status(), "S"),
            max(0.0, min(boottime_s, process.create_time() - boot_s)),
            times.user + times.system,
            process.memory_info().rss,
            _group(Path(f"{proc}/{pid}/cgroup").read_text(errors="replace")),
            _devices(f"{proc}/{pid}/fd"),
        )


def _group(text: str) -> str:
    """The path in version 2, or in version 1's freezer; else the longest, which says most (cgroups(7))."""
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2}
    return (paths.get("") or paths.get("freezer") or max(paths.values(), key=len, default=""))[:GROUP_LIMIT]


def _devices(folder: str) -> tuple[str, ...]:
    found = set()
    with contextlib.suppress(PermissionError):
        for name in os.listdir(folder)[:DESCRIPTORS_LIMIT]:
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith(_DEVICES):
                    found.add(target[:64])
    return tuple(sorted(found))[:16]
