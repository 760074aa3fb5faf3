"""A disk that stops answering costs one check its answer, and nothing else."""

import time
from collections.abc import Iterator
from pathlib import Path

import frozen
import pytest
from fleet import Agent
from listener import Listener
from slurm_cluster import wait_until

from nodetriage.v1 import health_pb2 as pb

SETTINGS = """\
[checks.fs_mounts]
every_s = 0.5
timeout_s = 1.0

[checks.ib_link]
every_s = 0.2
"""


@pytest.fixture
def agent(folder: Path, mount: frozen.FreezableMount, listener: Listener) -> Iterator[Agent]:
    agent = Agent(folder / "n1", "n1", listener.address, SETTINGS)
    agent.start()
    wait_until(lambda: listener.heartbeats, 10, "the agent is connected")
    yield agent
    mount.thaw_if_frozen()
    agent.close()


def test_a_frozen_disk_is_a_finding_while_heartbeat_and_other_checks_go_on(
    agent: Agent, mount: frozen.FreezableMount, listener: Listener
) -> None:
    assert agent.check("fs_mounts")["outcome"] == "ok"
    frozen_s = time.monotonic()

    mount.freeze()

    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "hung", 20, "fs_mounts is hung")
    (finding,) = agent.check("fs_mounts")["findings"]
    assert (finding["part"], finding["fault"]) == (str(mount.point), "mount_hung")
    assert finding["evidence"]["wchan"] == "request_wait_answer"
    wait_until(lambda: time.monotonic() - frozen_s > 4, 10, "it has been frozen for four seconds")
    assert agent.check("fs_mounts")["outcome"] == "hung"
    now_s = time.monotonic()
    wait_until(lambda: agent.check("ib_link")["age_s"] < time.monotonic() - now_s, 20, "ib_link runs")
    assert listener.longest_gap_s(frozen_s) < 3  # a heart that waits for the disk stands still for more than four

    mount.thaw()

    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "ok", 20, "fs_mounts is ok again")
    assert agent.check("fs_mounts")["findings"] == []
    wait_until(lambda: not agent.status()["abandoned_workers"], 10, "the abandoned worker has ended")
    kinds = [pb.EVENT_KIND_RAISED, pb.EVENT_KIND_CLEARED]
    wait_until(lambda: [e.kind for e in listener.events if e.fault == "mount_hung"] == kinds, 10, "both events came")
