"""Whether a Slurm job may be on the node, by the control groups."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.slurm_jobs import has_job

V2 = "sys/fs/cgroup/system.slice/slurmstepd.scope"
NAMED = "sys/fs/cgroup/system.slice/n1_slurmstepd.scope"
V1 = "sys/fs/cgroup/freezer/slurm_n1"


@pytest.mark.parametrize(("scope", "job"), [(V2, "job_17"), (NAMED, "job_17"), (V1, "uid_1000/job_17")])
def test_a_job_has_a_control_group_and_a_node_without_one_is_idle(tmp_path: Path, scope: str, job: str) -> None:
    (tmp_path / scope / "system").mkdir(parents=True)
    assert not has_job(tmp_path)

    (tmp_path / scope / job).mkdir(parents=True)
    assert has_job(tmp_path)


@pytest.mark.parametrize("sign", ["etc/slurm", "run/slurm", "var/spool/slurmd"])
def test_where_slurm_keeps_no_control_groups_a_job_may_be_there(tmp_path: Path, sign: str) -> None:
    (tmp_path / sign).mkdir(parents=True)

    assert has_job(tmp_path)


def test_a_machine_without_slurm_has_no_job(tmp_path: Path) -> None:
    assert not has_job(tmp_path)
