"""What a job left behind: processes, memory, and processes that nobody can end.

Source: Slurm's control groups, the processes of users, /proc/meminfo and /dev/shm.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Process, Scalar, Severity
from nodetriage.checks.rules.job_memory import GIB, Memory, left, read_memory, with_least
from nodetriage.checks.rules.slurm_groups import are_here, job_of, running_jobs

_OF_SLURMD = "/slurmd.service"  # a process that a job started outside its own control group


@dataclass(frozen=True, slots=True)
class Policy:
    """From when on something that was left behind counts. Memory is judged only while no job runs."""

    min_age_s: float = 60.0  # a younger process may still be ending
    stuck_s: float = 300.0  # a process that sleeps uninterruptibly for so long does not end
    shm_gib: float = 1.0  # in /dev/shm
    huge_gib: float = 1.0  # of huge pages, more than at the least busy moment of this boot
    memory_gib: float = 32.0  # in use, more than at the least busy moment of this boot
    severity: Severity = Severity.WARNING  # of each of them


@dataclass(frozen=True, slots=True)
class Left:
    """`stuck_since`: by "PID START", when the process was first seen to sleep uninterruptibly."""

    at_s: float
    jobs: tuple[str, ...]
    jobs_known: bool
    memory: Memory
    processes: tuple[Process, ...] = ()
    stuck_since: tuple[tuple[str, float], ...] = ()


def read(host: Host) -> Left:
    """Raises Unavailable in a recording without processes."""
    processes = host.processes()
    jobs, jobs_known = running_jobs(host), are_here(host)
    return Left(host.boottime_s(), jobs, jobs_known, read_memory(host), processes)


def next_state(before: Left | None, now: Left) -> Left:
    """Since when each process is stuck, and the least memory that was in use; not the processes themselves."""
    since = dict(before.stuck_since) if before else {}
    stuck = tuple((_key(p), since.get(_key(p), now.at_s)) for p in now.processes if p.state == "D")
    memory = with_least(now.memory, before.memory if before else None, _is_idle(now))
    return replace(now, processes=(), stuck_since=stuck, memory=memory)


def judge(now: Left, before: Left | None, policy: Policy) -> Iterator[Finding]:
    theirs = [p for p in now.processes if _is_left(p, now) and now.at_s - p.started_s >= policy.min_age_s]
    if theirs:
        yield Finding("processes", "job_processes_left", policy.severity, _evidence(theirs, now))
    since = dict(before.stuck_since) if before else {}
    stuck = [p for p in now.processes if p.state == "D" and now.at_s - since.get(_key(p), now.at_s) >= policy.stuck_s]
    if stuck:
        yield Finding("processes", "process_uninterruptible", policy.severity, _evidence(stuck, now))
    if _is_idle(now):
        yield from _memory(now.memory, before.memory if before else None, policy)


def _memory(now: Memory, before: Memory | None, policy: Policy) -> Iterator[Finding]:
    limits_gib = {"shm": policy.shm_gib, "huge_pages": policy.huge_gib, "memory": policy.memory_gib}
    for what, size in left(now, before):
        if size > limits_gib[what] * GIB:
            yield Finding(what, "job_memory_left", policy.severity, {"left_gib": round(size / GIB, 2)})


def _is_idle(now: Left) -> bool:
    return now.jobs_known and not now.jobs


def _is_left(process: Process, now: Left) -> bool:
    job = job_of(process.group)
    return now.jobs_known and (job not in now.jobs if job else process.group.endswith(_OF_SLURMD))


def _key(process: Process) -> str:
    return f"{process.pid} {process.started_s:.0f}"


def _evidence(processes: list[Process], now: Left) -> dict[str, Scalar]:
    oldest = min(processes, key=lambda p: p.started_s)
    return {
        "processes": len(processes), "pid": oldest.pid, "uid": oldest.uid, "process": oldest.name[:64],
        "state": oldest.state, "age_s": round(now.at_s - oldest.started_s), "cpu_s": round(oldest.cpu_s),
        "memory_gib": round(sum(p.memory_bytes for p in processes) / GIB, 2),
        "job_id": job_of(oldest.group), "devices": " ".join(oldest.devices)[:200],
    }  # fmt: skip


CHECK = Check(
    name="after_job",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("job_processes_left", "job_memory_left", "process_uninterruptible"),
    every_s=1800,
    next_state=next_state,
)
