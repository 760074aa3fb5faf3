"""A disk that stops answering costs one check its answer, and nothing else."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import frozen
import pytest
from fleet import LIMIT_S, Agent
from listener import Listener
from slurm_cluster import wait_until

from nodetriage.v1 import health_pb2 as pb

SETTINGS = """\
[checks.fs_mounts]
every_s = 0.5
timeout_s = 4.0

[checks.ib_link]
every_s = 0.2
"""


FROZEN_S, GAP_S = 16.0, 8.0


@pytest.fixture
def agent(folder: Path, mount: frozen.FreezableMount, listener: Listener) -> Iterator[Agent]:
    agent = Agent(folder / "n1", "n1", listener.address, SETTINGS)
    agent.start()
    wait_until(lambda: listener.heartbeats, LIMIT_S, "the agent is connected")
    yield agent
    mount.thaw_if_frozen()
    agent.close()


def of_mount(agent: Agent, mount: frozen.FreezableMount) -> list[dict[str, Any]]:
    """What fs_mounts finds on this mount: another run of the tests may have a sick one at the same time."""
    return [f for f in agent.check("fs_mounts")["findings"] if f["component"] == str(mount.point)]


def test_a_frozen_disk_is_a_finding_while_heartbeat_and_other_checks_go_on(
    agent: Agent, mount: frozen.FreezableMount, listener: Listener
) -> None:
    wait_until(lambda: agent.check("fs_mounts")["outcome"] in ("ok", "findings"), LIMIT_S, "fs_mounts has looked")
    assert of_mount(agent, mount) == []
    frozen_s = time.monotonic()

    mount.freeze()

    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "hung", LIMIT_S, "fs_mounts is hung")
    (finding,) = of_mount(agent, mount)
    assert finding["fault"] == "mount_hung"
    assert finding["evidence"]["wchan"] == "request_wait_answer"
    wait_until(lambda: time.monotonic() - frozen_s > FROZEN_S, LIMIT_S, f"it has been frozen for {FROZEN_S:g} s")
    assert agent.check("fs_mounts")["outcome"] == "hung"
    now_s = time.monotonic()
    wait_until(lambda: agent.check("ib_link")["age_s"] < time.monotonic() - now_s, LIMIT_S, "ib_link runs")
    assert listener.longest_gap_s(frozen_s) < GAP_S  # a heart that waits for the disk stands still all the time

    mount.thaw()

    wait_until(lambda: agent.check("fs_mounts")["outcome"] != "hung", LIMIT_S, "fs_mounts answers again")
    wait_until(lambda: of_mount(agent, mount) == [], LIMIT_S, "the mount is well again")
    wait_until(lambda: not agent.status()["abandoned_workers"], LIMIT_S, "the abandoned worker has ended")
    kinds = [pb.EVENT_KIND_RAISED, pb.EVENT_KIND_CLEARED]
    told = ("mount_hung", str(mount.point))
    wait_until(
        lambda: [e.kind for e in listener.events if (e.fault, e.component) == told] == kinds, LIMIT_S, "both came"
    )
