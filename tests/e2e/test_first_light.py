"""A GPU fault in a node's kernel log drains that node in a real Slurm and requeues its job; nothing else moves."""

import re
from pathlib import Path

import pytest
from fleet import Fleet
from slurm_cluster import SlurmCluster, wait_until

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]
XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REASON = re.compile(r"nodetriage: \S+ \S*3a:00\S* \[incident [\w-]+\]")
CRASH_POINT = re.compile(r'passing\("([\w.]+)"\)')


def steps_of(program: str) -> list[str]:
    """The steps at which a program can be made to die, as its source names them."""
    return sorted({name for p in (ROOT / program).rglob("*.py") for name in CRASH_POINT.findall(p.read_text())})


def two_jobs(cluster: SlurmCluster) -> tuple[int, int]:
    """Batch jobs running on n1 and on n2."""
    jobs = cluster.submit("-w", "n1"), cluster.submit("-w", "n2")
    for job in jobs:
        cluster.wait_job(job, "RUNNING")
    # The second was sent to its node by name; requeued, it may go anywhere.
    cluster.run("scontrol", "update", f"jobid={jobs[1]}", "reqnodelist=")
    return jobs


def assert_drained_and_requeued_once(cluster: SlurmCluster, fleet: Fleet, jobs: tuple[int, int]) -> None:
    """n2 has one drain of ours, its job was requeued once, and all else is as it was."""
    wait_until(lambda: cluster.job(jobs[1])["Restarts"] == "1", 30, "the job of n2 is requeued")
    wait_until(lambda: not fleet.open_actions(), 30, "nothing is left to be done")
    assert REASON.match(cluster.node("n2")["Reason"])
    assert cluster.changes_of("n2", since_start=True) == 1
    assert cluster.job(jobs[1])["Restarts"] == "1"
    assert {"DRAIN"}.isdisjoint(cluster.flags("n1") | cluster.flags("n3"))
    untouched = cluster.job(jobs[0])
    assert (untouched["JobState"], untouched["Restarts"], untouched["NodeList"]) == ("RUNNING", "0", "n1")
