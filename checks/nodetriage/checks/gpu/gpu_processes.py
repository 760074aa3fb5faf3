"""Processes on GPUs that no running job owns: what a job left behind, or what nobody can end any more.

Source: nvmlDeviceGetComputeRunningProcesses (of MIG instances too), and of each process /proc/PID/stat and cgroup.
/proc/PID/cmdline is not read: on a process that sleeps uninterruptibly it blocks whoever reads it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering

_TICKS_PER_S = 100  # USER_HZ: what /proc/PID/stat counts in, on every architecture that has these GPUs
_JOB = re.compile(r"/job_(\d+)\b")  # Slurm's cgroup of a job, in version 1 and 2
# Where Slurm keeps the jobs' cgroups. Without them nobody can tell whose a process is.
_SLURM_CGROUPS = ("/sys/fs/cgroup/system.slice/*slurmstepd.scope", "/sys/fs/cgroup/*/slurm*")
_STAT = re.compile(r"\d+ \((?P<comm>.*)\) (?P<state>\S)(?: \S+){18} (?P<start>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Policy:
    """`ignore`: names of processes that serve the GPUs themselves (comm, at most 15 characters), as shell patterns."""

    ignore: tuple[str, ...] = ("nvidia-*", "nv-hostengine", "dcgm*", "Xorg", "X", "gnome-shell", "nvsm*")
    min_age_s: float = 60.0
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a context on a GPU. `job` is Slurm's id, from the cgroup; empty: of no job."""

    pci: str
    uuid: str
    pid: int
    comm: str
    state: str  # as /proc/PID/stat has it: D is uninterruptible, Z has ended
    age_s: float
    job: str


@dataclass(frozen=True, slots=True)
class Processes:
    """`jobs_known`: Slurm's cgroups are there, so a process outside them is of no job."""

    found: tuple[Process, ...]
    jobs_known: bool


def read(host: Host) -> Processes:
    """A process that ends while it is read is no fault and left out."""
    told = [gpu for gpu in answering(host, whole=True) if gpu.processes is not None]
    if not told:
        raise Unavailable("no GPU here lists its processes")
    now_s = host.boottime_s()
    found = (_process(host, gpu.pci, gpu.uuid, pid, now_s) for gpu in told for pid in gpu.processes or ())
    jobs_known = any(host.glob(pattern) for pattern in _SLURM_CGROUPS)
    return Processes(tuple(process for process in found if process), jobs_known)


def _process(host: Host, pci: str, uuid: str, pid: int, now_s: float) -> Process | None:
    try:
        stat = _STAT.match(host.text(f"/proc/{pid}/stat"))
        cgroup = host.text(f"/proc/{pid}/cgroup")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if stat is None:
        raise ValueError(f"/proc/{pid}/stat: not what proc(5) describes")
    job = _JOB.search(cgroup)
    age_s = max(0.0, now_s - int(stat["start"]) / _TICKS_PER_S)
    return Process(pci, uuid, pid, stat["comm"][:64], stat["state"], age_s, job[1] if job else "")


def judge(now: Processes, before: Processes | None, policy: Policy) -> Iterator[Finding]:
    """One finding a GPU: the oldest process, and how many there are."""
    left: dict[str, list[Process]] = {}
    for process in now.found:
        stuck = process.state in "DZX"
        ours = any(fnmatchcase(process.comm, pattern) for pattern in policy.ignore)
        if (stuck or now.jobs_known) and not process.job and not ours and process.age_s >= policy.min_age_s:
            left.setdefault(process.pci, []).append(process)
    for pci, processes in left.items():
        oldest = max(processes, key=lambda p: p.age_s)
        evidence: dict[str, Scalar] = {
            "pid": oldest.pid, "process": oldest.comm, "state": oldest.state, "age_s": round(oldest.age_s),
            "processes": len(processes), "uuid": oldest.uuid,
        }  # fmt: skip
        yield Finding(pci, "gpu_process_left_over", policy.severity, evidence)


CHECK = Check(
    name="gpu_processes",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_process_left_over",),
    worker="gpu",
    timeout_s=10,
)
