"""A spool that cannot be written, on a real block device: the agent looks and tells all the same."""

from collections.abc import Iterator
from pathlib import Path

import loop_disk
import pytest
from fleet import LIMIT_S, Agent
from listener import Listener
from loop_disk import LoopDisk
from slurm_cluster import wait_until

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def disk(folder: Path) -> Iterator[LoopDisk]:
    if reason := loop_disk.missing():
        pytest.skip(reason)
    disk = LoopDisk(folder)
    yield disk
    disk.close()


@pytest.fixture
def agent(folder: Path, disk: LoopDisk, listener: Listener) -> Iterator[Agent]:
    """Its state is on the disk; it does not run yet."""
    agent = Agent(folder / "n1", "n1", listener.address)
    (agent.folder / "conf.d").mkdir()
    (agent.folder / "conf.d/state.toml").write_text(f'[agent]\nstate_dir = "{disk.path}"\n')
    yield agent
    agent.close()


def faults(listener: Listener) -> list[str]:
    return [event.fault for event in listener.events]


def spool(agent: Agent) -> str:
    return str(agent.status()["spool"]["trouble"])


def test_a_full_disk_keeps_no_fault_from_being_told_and_all_is_written_when_there_is_room(
    agent: Agent, disk: LoopDisk, listener: Listener
) -> None:
    agent.start()
    disk.fill()

    agent.kernel_log.write(XID_79 + "x" * 3000)

    wait_until(lambda: "gpu_off_bus" in faults(listener), LIMIT_S, "the fault is told")
    wait_until(lambda: "full" in spool(agent), LIMIT_S, "the agent says that the disk is full")
    wait_until(lambda: "spool_not_written" in faults(listener), LIMIT_S, "the controller hears of it too")
    disk.empty()
    wait_until(lambda: not spool(agent), LIMIT_S, "it is written again")


def test_a_disk_that_dies_keeps_no_fault_from_being_told(agent: Agent, disk: LoopDisk, listener: Listener) -> None:
    agent.start()
    disk.die()

    agent.kernel_log.write(XID_79)

    wait_until(lambda: {"gpu_off_bus", "spool_not_written"} <= set(faults(listener)), LIMIT_S, "both faults are told")
    assert "spool.sqlite" in spool(agent)
    assert agent.looked()


def test_an_agent_starts_on_a_disk_that_is_read_only(agent: Agent, disk: LoopDisk, listener: Listener) -> None:
    disk.make_read_only()

    agent.start()
    agent.kernel_log.write(XID_79)

    wait_until(lambda: {"gpu_off_bus", "spool_not_written"} <= set(faults(listener)), LIMIT_S, "both faults are told")
    assert agent.spawn(agent.folder / "second.log").wait() == 1


def test_a_corrupt_spool_is_kept_for_inspection_and_the_agent_starts_all_the_same(
    agent: Agent, disk: LoopDisk, listener: Listener
) -> None:
    (disk.path / "spool.sqlite").write_bytes(b"SQLite format 3\x00" + b"\xa5" * 20_000)

    agent.start()
    agent.kernel_log.write(XID_79)

    wait_until(lambda: "gpu_off_bus" in faults(listener), LIMIT_S, "the fault is told")
    (aside,) = disk.path.glob("spool.sqlite.corrupt-*[0-9]Z")
    assert aside.read_bytes().startswith(b"SQLite format 3\x00\xa5")
    wait_until(lambda: spool(agent) == "", LIMIT_S, "all is written, into the new file")
