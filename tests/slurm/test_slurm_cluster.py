"""The test cluster does what tests of drain, requeue and node failure rely on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import LIMIT_S, SlurmCluster, wait_until

pytestmark = pytest.mark.slurm


def test_a_drained_node_says_why_and_its_job_goes_on(slurm_cluster: SlurmCluster) -> None:
    job = slurm_cluster.submit("-w", "n2")
    slurm_cluster.wait_job(job, "RUNNING")

    slurm_cluster.run("scontrol", "update", "nodename=n2", "state=drain", "reason=a word, and=another")

    assert "DRAIN" in slurm_cluster.flags("n2")
    assert slurm_cluster.node("n2")["Reason"].startswith("a word, and=another [root@")
    assert slurm_cluster.job(job)["JobState"] == "RUNNING"


def test_a_requeued_job_starts_again_under_its_own_number(slurm_cluster: SlurmCluster) -> None:
    job = slurm_cluster.submit("-w", "n1")
    slurm_cluster.wait_job(job, "RUNNING")

    slurm_cluster.run("scontrol", "requeue", str(job))

    slurm_cluster.wait_job(job, "RUNNING")
    assert slurm_cluster.job(job)["Restarts"] == "1"


def test_nothing_of_a_crashed_node_lives_and_its_neighbour_does(slurm_cluster: SlurmCluster) -> None:
    jobs = [slurm_cluster.submit("-w", node) for node in ("n1", "n2")]
    for job in jobs:
        slurm_cluster.wait_job(job, "RUNNING")
    for node in (b"n1", b"n2"):
        wait_until(lambda n=node: _of(slurm_cluster.directory, b"SLURMD_NODENAME=" + n), LIMIT_S, "its processes run")

    slurm_cluster.crash_node("n1")

    assert _of(slurm_cluster.directory, b"SLURMD_NODENAME=n1") == []
    assert _of(slurm_cluster.directory, b"SLURMD_NODENAME=n2")


def test_stopping_a_cluster_leaves_no_process_behind(new_slurm_cluster: Callable[..., SlurmCluster]) -> None:
    cluster = new_slurm_cluster(nodes=2, extra_conf="HealthCheckInterval=0\n")
    cluster.wait_job(cluster.submit(), "RUNNING")

    cluster.stop()

    wait_until(lambda: _of(cluster.directory, b"") == [], LIMIT_S, "its last process has ended")


def _of(directory: Path, setting: bytes) -> list[str]:
    """Command lines of the processes that belong to the cluster under `directory`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if (
            process.name != str(os.getpid())
            and command
            and os.fsencode(directory) in environment
            and setting in environment
        ):
            found.append(command.decode())
    return found
