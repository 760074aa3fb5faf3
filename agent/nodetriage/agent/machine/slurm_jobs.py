"""Whether a Slurm job is on this node, as far as a look at file names tells. It never waits for a device or a disk.

Slurm keeps each job's processes in a control group of its own (cgroup.conf(5)); where it does not, nobody can tell.
"""

from pathlib import Path

_GROUPS = ("sys/fs/cgroup/system.slice/*slurmstepd.scope", "sys/fs/cgroup/*/slurm*")  # of version 2, of version 1
_JOBS = ("job_*", "uid_*/job_*")  # below these
_SIGNS = ("etc/slurm", "run/slurm", "run/slurmd.pid", "var/spool/slurmd", "var/spool/slurm")


def has_job(root: Path = Path("/")) -> bool:
    """Whether a job may be here: also true where Slurm is here and keeps no control groups."""
    groups = [group for pattern in _GROUPS for group in root.glob(pattern)]
    if groups:
        return any(next(group.glob(jobs), None) is not None for group in groups for jobs in _JOBS)
    return any((root / sign).exists() for sign in _SIGNS)
