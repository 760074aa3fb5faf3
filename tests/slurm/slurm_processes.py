"""The processes of a test cluster's jobs: found by what they hold open and by their environment, and killed."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def kill_job_processes(directory: Path, node: str | None) -> int:
    """How many there were. slurmstepd goes first, or it would report its job's end."""
    steps = list(_step_daemons(directory / "log", node or "*"))
    for process in steps:
        _kill(process)
    wanted = {f"SLURM_CONF={directory}/slurm.conf".encode()}
    if node:
        wanted.add(f"SLURMD_NODENAME={node}".encode())
    tasks = [
        process
        for process, environment in _environments()
        if wanted <= environment and any(v.startswith(b"SLURMD_NODENAME=") for v in environment)
    ]
    for process in tasks:
        _kill(process)
    return len(steps) + len(tasks)


def _step_daemons(logs: Path, node: str) -> Iterator[int]:
    """Processes that hold a node's slurmd log open: slurmd itself and its slurmstepds."""
    wanted = {str(p) for p in logs.glob(f"slurmd.{node}.log")}
    for fds in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(str(fd.readlink()) in wanted for fd in fds.iterdir()):
                yield int(fds.parent.name)


def _environments() -> Iterator[tuple[int, set[bytes]]]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), set(path.read_bytes().split(b"\0"))


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
