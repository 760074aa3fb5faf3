"""An agent's state is lost, a database is restored: the real programs and a real Slurm agree again by themselves."""

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fleet import LIMIT_S, Fleet
from slurm_cluster import SlurmCluster, wait_until

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def share(folder: Path) -> Iterator[Path]:
    """A place where a file system belongs, and none is mounted yet."""
    place = folder / "share"
    place.mkdir()
    yield place
    subprocess.run(["umount", str(place)], check=False, capture_output=True)


def open_faults(fleet: Fleet, node: str) -> set[str]:
    (view,) = (v for v in fleet.ctl("nodes") if v["node"] == node)
    return {f["fault"] for f in view["findings"]}


def test_an_agent_that_lost_its_state_leaves_no_ghost(lone_fleet: Fleet, share: Path) -> None:
    lone_fleet.start_controller()
    expected = f'[checks.fs_mounts]\nfrom_fstab = false\nevery_s = 1\n[checks.fs_mounts.expected."{share}"]\n'
    agent = lone_fleet.add_agent("n1", expected)
    wait_until(lambda: "mount_missing" in open_faults(lone_fleet, "n1"), LIMIT_S, "the missing mount is known")

    agent.program.kill()
    shutil.rmtree(agent.folder / "state")
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(share)], check=False).returncode:
        pytest.skip("this machine may not mount anything")
    agent.start()

    wait_until(lambda: "mount_missing" not in open_faults(lone_fleet, "n1"), LIMIT_S, "the ghost is gone")
    query = "SELECT count(*) FROM events WHERE boot_id = 'controller' AND fault = 'mount_missing' AND kind = 4"
    assert lone_fleet.history(query) == [(1,)]


@pytest.mark.slurm
def test_after_a_restore_our_drains_are_ours_and_no_id_is_given_twice(fleet: Fleet, cluster: SlurmCluster) -> None:
    for node in ("n1", "n2"):
        fleet.add_agent(node)
    file, backup = fleet.folder / "controller/history.sqlite", fleet.folder / "backup.sqlite"
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    fleet.agents["n1"].kernel_log.write(XID_79)
    wait_until(lambda: "DRAIN" in cluster.flags("n1"), LIMIT_S, "n1 is drained")
    wait_until(lambda: not fleet.ctl("actions", "--open"), LIMIT_S, "nothing is left to be done")
    reason = cluster.node("n1")["Reason"]

    fleet.controller.stop()
    for stale in file.parent.glob("history.sqlite*"):
        stale.unlink()
    shutil.copy(backup, file)
    fleet.start_controller()

    def adopted() -> bool:
        (view,) = (v for v in fleet.ctl("nodes") if v["node"] == "n1")
        return view["drain"] == "done" and not view["theirs"] and view["incident"] in reason

    wait_until(adopted, LIMIT_S, "the drain of n1 is ours again")
    wait_until(lambda: "gpu_off_bus" in open_faults(fleet, "n1"), LIMIT_S, "its fault is known again")
    fleet.agents["n2"].kernel_log.write(XID_79)
    wait_until(lambda: "DRAIN" in cluster.flags("n2"), LIMIT_S, "n2 is drained")
    first, second = (cluster.node(n)["Reason"].partition("[incident ")[2].partition("]")[0] for n in ("n1", "n2"))
    assert first != second
    assert "-e" in second
    assert cluster.node("n1")["Reason"].startswith(reason.partition(" [root@")[0])


def presences(fleet: Fleet) -> dict[str, tuple[str, str]]:
    return {v["node"]: (v["state"], v["presence"]) for v in fleet.ctl("nodes")}


@pytest.mark.slurm
def test_silent_agents_stay_known_over_a_restart_and_come_back_by_themselves(fleet: Fleet) -> None:
    for node in ("n1", "n2"):
        fleet.add_agent(node)
    heard = {"n1": ("Healthy", "heard"), "n2": ("Healthy", "heard"), "n3": ("Unknown", "never")}
    wait_until(lambda: presences(fleet) == heard, LIMIT_S, "two agents report, and one node has none")
    for node in ("n1", "n2"):
        fleet.agents[node].program.kill()
    wait_until(lambda: presences(fleet)["n2"] == ("Unknown", "silent"), LIMIT_S, "both are silent")

    fleet.controller.stop()
    assert presences(fleet)["n1"][0] == "Unknown"
    fleet.agents["n1"].start(wait=False)
    fleet.start_controller()

    wait_until(lambda: presences(fleet)["n1"] == ("Healthy", "heard"), LIMIT_S, "n1 is back")
    assert presences(fleet)["n2"] == ("Unknown", "silent")
    query = "SELECT max(kind) FROM events WHERE fault = 'agent_silent' AND node = ?"
    wait_until(lambda: fleet.history(query, "n1") == [(4,)], LIMIT_S, "its silence is over")
    assert fleet.history(query, "n2") == [(1,)]
