"""A disk that stops answering costs one check its answer, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import frozen
import pytest
from fleet import Fleet
from slurm_cluster import wait_until

SETTINGS = """\
[checks.fs_mounts]
every_s = 0.5
timeout_s = 1.0

[checks.ib_link]
every_s = 0.2
"""


@pytest.fixture
def mount(folder: Path) -> Iterator[frozen.FreezableMount]:
    if reason := frozen.missing():
        pytest.skip(reason)
    mount = frozen.FreezableMount(folder)
    yield mount
    mount.close()


def test_a_frozen_disk_is_a_finding_while_heartbeat_and_other_checks_go_on(
    lone_fleet: Fleet, mount: frozen.FreezableMount
) -> None:
    lone_fleet.start_controller()
    agent = lone_fleet.add_agent("n1", SETTINGS)
    assert agent.check("fs_mounts")["outcome"] == "ok"

    mount.freeze()

    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "hung", 20, "fs_mounts is hung")
    (finding,) = agent.check("fs_mounts")["findings"]
    assert (finding["part"], finding["fault"]) == (str(mount.point), "mount_hung")
    assert finding["evidence"]["wchan"] == "request_wait_answer"
    for _ in range(10):
        wait_until(lambda: agent.check("ib_link")["age_s"] < 0.1, 2, "another check has just run")
        assert lone_fleet.heartbeat_age_s("n1") < 1

    mount.thaw()

    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "ok", 20, "fs_mounts is ok again")
    assert agent.check("fs_mounts")["findings"] == []
    wait_until(lambda: not agent.status()["abandoned_workers"], 10, "the abandoned worker has ended")
