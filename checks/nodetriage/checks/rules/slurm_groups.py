"""Slurm's control groups: which jobs run here, and whose job a process is (cgroup.conf(5), cgroups(7))."""

import re

from nodetriage.checks.model import Host

VERSION_2 = "/sys/fs/cgroup/system.slice/*slurmstepd.scope"
VERSION_1 = "/sys/fs/cgroup/*/slurm*"
_JOB = re.compile(r"/job_(\d{1,10})(?:/|$)")


def are_here(host: Host) -> bool:
    """Whether Slurm keeps control groups, so that a process outside them belongs to no job."""
    return any(host.glob(pattern) for pattern in (VERSION_2, VERSION_1))


def running_jobs(host: Host) -> tuple[str, ...]:
    """The jobs that have a step daemon. In version 1 the daemon is elsewhere, and every job counts that has a group."""
    found = {path.name for path in host.glob(f"{VERSION_1}/uid_*/job_*")}
    for path in host.glob(f"{VERSION_2}/job_*/step_*/slurm/cgroup.procs"):
        if host.text(path):
            found.add(path.parts[-4])
    return tuple(sorted(name.removeprefix("job_") for name in found))


def job_of(group: str) -> str:
    """The job in whose control group this is; "" where it is in none."""
    found = _JOB.search(group)
    return found[1] if found else ""
