"""Two controllers on one PostgreSQL and a real Slurm: the leader is killed while it acts, and the other goes on."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import LIMIT_S, START_LIMIT_S, Agent
from pair import Pair
from slurm_cluster import SlurmCluster, wait_until

pytestmark = pytest.mark.slurm
XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def pair(folder: Path, cluster: SlurmCluster, postgres_url: str) -> Iterator[Pair]:
    pair = Pair(folder, cluster, postgres_url)
    try:
        yield pair
    finally:
        pair.close()


@pytest.fixture
def agent(folder: Path, pair: Pair) -> Iterator[Agent]:
    """It knows both controllers."""
    agent = Agent(folder / "n1", "n1", f'{pair.address("a")}", "{pair.address("b")}')
    try:
        yield agent
    finally:
        agent.close()


def test_the_leader_is_killed_while_it_acts_and_the_other_drains_and_requeues_once(
    pair: Pair, agent: Agent, cluster: SlurmCluster
) -> None:
    slurm_log = cluster.directory / "log/slurmctld.log"
    began = slurm_log.stat().st_size
    job = cluster.submit("-w", "n1")
    cluster.wait_job(job, "RUNNING")
    pair.start("a", die_at="action.after_drain")
    pair.wait_for_log("a", "reconciler started")
    pair.start("b")
    pair.wait_for_log("b", "standing by")
    assert not (pair.folder / "b/c.sock").exists()
    agent.start()
    wait_until(lambda: agent.status()["controller"]["connected"], START_LIMIT_S, "the agent is connected to the leader")

    agent.kernel_log.write(XID_79)

    assert pair.running["a"].wait() == -signal.SIGKILL
    died = time.monotonic()
    pair.wait_for_log("b", "leading")
    print(f"the other leads {time.monotonic() - died:.2f} s after the kill")
    wait_until(lambda: cluster.job(job)["Restarts"] == "1", LIMIT_S, "the job is requeued")
    open_ones = "SELECT id FROM actions WHERE status IN ('pending', 'started')"
    wait_until(lambda: not pair.rows(open_ones), LIMIT_S, "nothing is left to be done")
    assert cluster.node("n1")["Reason"].startswith("nodetriage: gpu_off_bus ")
    assert len(re.findall("update_node: node n1 reason set to", slurm_log.read_text()[began:])) == 1
    assert sorted(pair.rows("SELECT kind, status FROM actions WHERE kind != 'notify'")) == [
        ("drain", "done"),
        ("requeue", "done"),
    ]
    wait_until(lambda: agent.status()["controller"]["connected"], LIMIT_S, "the agent found the new leader")
    wait_until(lambda: agent.status()["spool"]["events"] == 0, LIMIT_S, "every event has arrived")
    assert pair.rows("SELECT count(*) - max(seq) FROM events WHERE node = 'n1' AND boot_id != 'controller'") == [(0,)]
    # The first comes back and stands by.
    pair.start("a")
    pair.wait_for_log("a", "standing by")
    assert pair.running["b"].status is None


def test_a_leader_whose_lock_is_gone_ends_at_once_and_the_other_leads(pair: Pair) -> None:
    pair.start("a")
    pair.wait_for_log("a", "reconciler started")
    pair.start("b")
    pair.wait_for_log("b", "standing by")
    pair.rows("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    assert pair.running["a"].wait() == 75
    assert "leadership lost, ending at once" in pair.log("a")
    pair.wait_for_log("b", "reconciler started")
