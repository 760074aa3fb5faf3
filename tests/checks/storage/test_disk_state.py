"""NVMe controllers and RAID sets, as the kernel knows them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers.disks import Controller
from nodetriage.checks.readers.md import Array, Member, disk_of
from nodetriage.checks.storage.disk_state import Disks, Policy, judge, next_state, read

LIVE = Controller("0000:61:00.0", "nvme9", 1000.0, "live", "pcie")
RAID1 = Array("md0", "raid1", "active", 2, 0, "idle", (Member("sda1", "sda", False), Member("sdb1", "sdb", False)))


def looks(*rounds: Disks) -> list[Finding]:
    """What the last of the looks says."""
    memory = None
    for now in rounds:
        found = list(judge(now, memory, Policy()))
        memory = next_state(memory, now)
    return found


def in_state(state: str, at_s: float) -> Disks:
    return Disks((replace(LIVE, state=state, at_s=at_s),))


def put_array(root: Path, name: str, members: dict[str, str], **files: str) -> None:
    md = root / f"sys/block/{name}/md"
    md.mkdir(parents=True)
    for file, text in {"level": "raid1", "array_state": "clean", "raid_disks": "2", "degraded": "0", **files}.items():
        (md / file).write_text(text + "\n")
    for device, state in members.items():
        (md / f"dev-{device}").mkdir()
        (md / f"dev-{device}/state").write_text(state + "\n")


def put_nvme(root: Path, name: str, address: str, state: str = "live") -> None:
    folder = root / f"sys/class/nvme/{name}"
    folder.mkdir(parents=True)
    (folder / "state").write_text(state + "\n")
    (root / f"sys/devices/{address}").mkdir(parents=True)
    (folder / "device").symlink_to(f"/sys/devices/{address}")


@pytest.mark.parametrize("state", ["resetting", "connecting", "new", "deleting (no IO)"])
def test_a_controller_that_resets_or_connects_for_a_minute_is_stuck(state: str) -> None:
    (finding,) = looks(in_state("live", 0), in_state(state, 10), in_state(state, 40), in_state(state, 70))

    assert (finding.component, finding.fault, finding.severity) == ("0000:61:00.0", "disk_stuck", Severity.MAJOR)
    assert (finding.evidence["state"], finding.evidence["since_s"]) == (state, 60)


def test_a_controller_that_is_live_again_in_between_is_not_stuck() -> None:
    assert looks(in_state("resetting", 10), in_state("resetting", 69)) == []
    assert looks(in_state("resetting", 10), in_state("live", 40), in_state("resetting", 80)) == []


def test_a_dead_controller_is_found_at_once() -> None:
    assert [(f.fault, f.severity) for f in looks(in_state("dead", 10))] == [("disk_dead", Severity.CRITICAL)]


def test_one_lost_disk_in_two_sets_is_one_finding(tmp_path: Path) -> None:
    put_nvme(tmp_path, "nvme9", "0000:61:00.0", "dead")
    put_array(tmp_path, "md0", {"nvme9n1p2": "faulty", "sda2": "in_sync"}, degraded="1")
    put_array(tmp_path, "md1", {"nvme9n1p4": "faulty,write_mostly", "sda4": "in_sync"}, level="raid6", degraded="1")

    found = list(judge(read(Host(tmp_path)), None, Policy()))

    assert {(f.component, f.fault, f.severity) for f in found} == {
        ("0000:61:00.0", "disk_dead", Severity.CRITICAL),
        ("0000:61:00.0", "raid_degraded", Severity.MAJOR),
    }
    assert found[1].evidence["members"] == "md0:nvme9n1p2 md1:nvme9n1p4"


def test_a_set_whose_lost_disk_has_left_it_is_named_itself() -> None:
    (finding,) = looks(Disks((), (replace(RAID1, missing=1, members=RAID1.members[:1]),)))

    assert (finding.component, finding.fault) == ("md0", "raid_degraded")
    assert (finding.evidence["missing_members"], finding.evidence["level"]) == (1, "raid1")


@pytest.mark.parametrize(
    ("level", "state", "missing", "failed"),
    [
        ("raid5", "clean", 1, False),
        ("raid5", "clean", 2, True),
        ("raid6", "clean", 2, False),
        ("raid6", "clean", 3, True),
        ("raid10", "clean", 2, False),
        ("raid0", "broken", 0, True),
        ("raid0", "clean", 0, False),
        ("raid1", "clean", 11, False),
        ("raid1", "clean", 12, True),
    ],
)
def test_a_set_that_lost_more_than_it_can_has_failed(level: str, state: str, missing: int, failed: bool) -> None:
    now = Disks((), (Array("md0", level, state, 12, missing),))

    faults = [(f.fault, f.severity) for f in judge(now, None, Policy())]

    degraded = [("raid_degraded", Severity.MAJOR)] if missing else []
    assert faults == ([("raid_failed", Severity.CRITICAL)] if failed else degraded)


@pytest.mark.parametrize(
    "state", ["active", "clean", "readonly", "read-auto", "active-idle", "write-pending", "inactive"]
)
def test_a_whole_set_is_well_in_each_state(state: str) -> None:
    assert looks(Disks((), (replace(RAID1, state=state, syncing="check"),))) == []


def test_a_spare_and_a_container_of_external_metadata_are_no_fault(tmp_path: Path) -> None:
    put_array(tmp_path, "md0", {"sda1": "in_sync", "sdb1": "in_sync", "sdc1": "spare"})
    put_array(tmp_path, "md127", {"sda": "in_sync"}, level="", array_state="inactive", raid_disks="0", degraded="")
    (tmp_path / "sys/block/md127/md/degraded").unlink()

    assert list(judge(read(Host(tmp_path)), None, Policy())) == []


def test_a_machine_without_either_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no RAID set"):
        read(Host(tmp_path))


@pytest.mark.parametrize("text", ["", "-1", "many", "9" * 400, "\ufffd"])
def test_a_set_that_gives_nonsense_is_found_and_does_not_hide_the_others(tmp_path: Path, text: str) -> None:
    put_array(tmp_path, "md0", {}, degraded=text)
    put_array(tmp_path, "md1", {"sda1": "faulty"}, degraded="1")

    found = {(f.component, f.fault) for f in judge(read(Host(tmp_path)), None, Policy())}

    assert found == {("md0", "disk_unreadable"), ("sda", "raid_degraded")}


@pytest.mark.parametrize(
    ("device", "disk"),
    [
        ("sda", "sda"),
        ("sdab12", "sdab"),
        ("vdb1", "vdb"),
        ("nvme3n1p4", "nvme3"),
        ("nvme3c7n2", "nvme3"),
        ("dm-3", "dm-3"),
    ],
)
def test_a_member_belongs_to_a_disk(tmp_path: Path, device: str, disk: str) -> None:
    assert disk_of(Host(tmp_path), device) == disk


@given(st.lists(st.sampled_from(["live", "resetting", "connecting", "dead", "", "x"]), max_size=9))
def test_no_sequence_of_states_makes_a_live_controller_a_fault(states: list[str]) -> None:
    memory = None
    for number, state in enumerate(states):
        now = in_state(state, 30.0 * number)
        found = {f.fault for f in judge(now, memory, Policy())}
        assert found <= (
            {"disk_dead"} if state == "dead" else {"disk_stuck"} if state in ("resetting", "connecting") else set()
        )
        memory = next_state(memory, now)
