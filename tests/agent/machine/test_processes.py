"""The processes of users, from the real kernel."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetriage.agent.machine.boot import boottime_s
from nodetriage.agent.machine.host import Host
from nodetriage.agent.machine.processes import _group, of_users
from nodetriage.checks.model import Process

UID = 12345


@pytest.fixture
def user_process() -> Iterator[int]:
    if os.geteuid():
        pytest.skip("only root can start a process of another user")
    with subprocess.Popen(["sleep", "600"], user=UID, group=UID) as child:
        yield child.pid
        child.kill()


def of(pid: int, processes: tuple[Process, ...]) -> Process:
    return next(process for process in processes if process.pid == pid)


def test_a_process_of_a_user_is_described_and_roots_are_left_out(user_process: int) -> None:
    announced: list[str] = []
    found = of_users(announced.append, boottime_s())
    mine = of(user_process, found)

    assert (mine.parent, mine.uid, mine.name, mine.state) == (os.getpid(), UID, "sleep", "S")
    assert 0 <= boottime_s() - mine.started_s < 300
    assert mine.memory_bytes > 0
    assert mine.group == _group(Path(f"/proc/{user_process}/cgroup").read_text())
    assert os.getpid() not in {process.pid for process in found}
    assert f"read /proc/{user_process}" in announced


def test_the_host_gives_them_in_the_order_of_their_start(user_process: int) -> None:
    started_s = [process.started_s for process in Host().processes()]

    assert started_s == sorted(started_s)
    assert of(user_process, Host().processes()).uid == UID


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("0::/system.slice/slurmstepd.scope/job_7/step_0\n", "/system.slice/slurmstepd.scope/job_7/step_0"),
        ("11:freezer:/slurm/uid_1000/job_7\n3:memory:/\n", "/slurm/uid_1000/job_7"),
        ("4:cpu,cpuacct:/a/longer\n3:memory:/\n", "/a/longer"),
        ("nonsense\n", ""),
        ("", ""),
    ],
)
def test_the_control_group_is_found_in_both_versions(text: str, group: str) -> None:
    assert _group(text) == group
