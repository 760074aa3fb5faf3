"""Processes on GPUs that belong to no running job, and memory of GPUs that no process has: what a job left behind.

Source: nvmlDeviceGetComputeRunningProcesses (also of MIG instances), and /proc/PID/stat and cgroup of each process.
The check does not read /proc/PID/cmdline, which blocks its reader while the process sleeps uninterruptibly.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Gpu, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering

_ATS = 2  # NVML_DEVICE_ADDRESSING_MODE_ATS
_TICKS_PER_S = 100  # USER_HZ, the unit of /proc/PID/stat on every architecture that has these GPUs
_JOB = re.compile(r"/job_(\d+)\b")  # Slurm's cgroup of a job, in version 1 and 2
# Where Slurm keeps the jobs' cgroups. Without them the check cannot tell whether a process belongs to a job.
_SLURM_CGROUPS = ("/sys/fs/cgroup/system.slice/*slurmstepd.scope", "/sys/fs/cgroup/*/slurm*")
_GIB = 1 << 30
_SERVICES = ("nvidia-*", "nv-hostengine", "dcgm*", "Xorg", "X", "gnome-shell", "nvsm*")  # use GPUs themselves
_STAT = re.compile(r"\d+ \((?P<comm>.*)\) (?P<state>\S)(?: \S+){18} (?P<start>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which processes may be outside a job."""

    ignore: tuple[str, ...] = _SERVICES  # shell patterns of process names (comm, at most 15 characters)
    min_age_s: float = 60.0  # a younger process does not count
    severity: Severity = Severity.WARNING  # of a process that was left over, and of memory
    held_gib: float = 4.0  # memory in use on a GPU without a process, in two runs; the driver reserves up to one


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a context on a GPU. `job` is Slurm's id of its job, from the cgroup; "" where it has none."""

    pci: str
    uuid: str
    pid: int
    comm: str
    state: str  # of /proc/PID/stat: D sleeps uninterruptibly, Z and X have ended
    age_s: float
    job: str


@dataclass(frozen=True, slots=True)
class Processes:
    """`jobs_known`: Slurm keeps cgroups here, so a process outside them belongs to no job."""

    found: tuple[Process, ...]
    jobs_known: bool
    held: Mapping[str, int] = field(default_factory=dict)  # bytes in use by PCI address, on GPUs without a process


def read(host: Host) -> Processes:
    """Leaves out a process that ends meanwhile. Raises Unavailable where no GPU lists its processes."""
    listed = [gpu for gpu in answering(host, whole=True) if gpu.processes is not None]
    if not listed:
        raise Unavailable("no GPU here lists its processes")
    now_s = host.boottime_s()
    found = (_process(host, gpu.pci, gpu.uuid, pid, now_s) for gpu in listed for pid in gpu.processes or ())
    jobs_known = any(host.glob(pattern) for pattern in _SLURM_CGROUPS)
    held = {gpu.pci: int(used) for gpu in listed if not gpu.processes and (used := _own_memory(gpu)) is not None}
    return Processes(tuple(process for process in found if process), jobs_known, held)


def _own_memory(gpu: Gpu) -> Scalar | None:
    """In use; None where it may be a MIG instance's, or the kernel's (a GPU whose memory is a NUMA node)."""
    if gpu.facts.get("mig_enabled") or gpu.facts.get("addressing_mode") == _ATS:
        return None
    return gpu.facts.get("memory_used_bytes")


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
    """One finding for each GPU, about its oldest process; `processes` counts them."""
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
    for pci, used in now.held.items():
        if min(used, before.held.get(pci, 0) if before else 0) > policy.held_gib * _GIB:
            yield Finding(pci, "gpu_memory_held", policy.severity, {"used_gib": round(used / _GIB, 1)})


CHECK = Check(
    name="gpu_processes",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_process_left_over", "gpu_memory_held"),
    worker="gpu",
    timeout_s=10,
)
