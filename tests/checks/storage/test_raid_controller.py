"""Volumes and drives behind RAID controllers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Severity, Unavailable
from nodetriage.checks.readers.tools.raid import Drive, Raid, Volume, ssacli, storcli
from nodetriage.checks.storage.raid_controller import Policy, judge, read

SSACLI = """
Smart Array P408i-a SR Gen10 in Slot 0 (Embedded)  (sn: PEYHC0DRHBV3XX)

   Internal Drive Cage at Port 1I, Box 1, OK

   Array A (SAS, Unused Space: 0  MB)

      logicaldrive 1 (931.48 GB, RAID 1, {volume})

      physicaldrive 1I:1:1 (port 1I:box 1:bay 1, SAS HDD, 1 TB, OK)
      physicaldrive 1I:1:2 (port 1I:box 1:bay 2, SAS HDD, 1 TB, {drive})
      physicaldrive 1I:1:3 (port 1I:box 1:bay 3, SAS HDD, 1 TB, OK, spare)
"""


def found(raid: Raid) -> set[tuple[str, str, Severity]]:
    return {(f.component, f.fault, f.severity) for f in judge(raid, None, Policy())}


def test_a_whole_volume_is_well_and_a_lost_drive_is_one_finding(hosts: Path) -> None:
    assert found(read(Host(hosts / "raid-controller"))) == set()
    assert found(read(Host(hosts / "raid-controller-degraded"))) == {
        ("raid0/252:1", "raid_degraded", Severity.MAJOR),
    }


@pytest.mark.parametrize(
    ("volume", "drive", "expected"),
    [
        ("OK", "OK", set()),
        ("Interim Recovery Mode", "Failed", {("raid0/1I:1:2", "raid_degraded", Severity.MAJOR)}),
        ("Recovering, 35% complete", "Rebuilding", {("raid0/v1", "raid_degraded", Severity.MAJOR)}),
        ("Failed", "Failed", {
            ("raid0/v1", "raid_failed", Severity.CRITICAL), ("raid0/1I:1:2", "disk_failing", Severity.WARNING),
        }),
        ("OK", "Predictive Failure", {("raid0/1I:1:2", "disk_failing", Severity.WARNING)}),
    ],
)  # fmt: skip
def test_the_lines_of_ssacli_are_read(volume: str, drive: str, expected: set[tuple[str, str, Severity]]) -> None:
    assert found(ssacli(SSACLI.format(volume=volume, drive=drive))) == expected


def answer(*drives: dict[str, object]) -> str:
    volumes = [{"DG/VD": "0/1", "TYPE": "RAID1", "State": "Optl"}] if drives else []
    data = {"VD LIST": volumes, "PD LIST": list(drives)}
    return json.dumps({"Controllers": [{"Command Status": {"Controller": 0}, "Response Data": data}]})


def test_a_tool_that_knows_no_controller_leaves_the_word_to_that_of_the_newer_ones(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:65:00.0"
    folder.mkdir(parents=True)
    (folder / "uevent").write_text("PCI_CLASS=10400\nPCI_ID=1000:00A5\n")
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/perccli64.txt").write_text(answer())
    assert read(Host(tmp_path)) == Raid()

    bad = {"EID:Slt": "322:3", "State": "UConf", "Status": "Bad", "DG": "-"}
    (tmp_path / "commands/perccli2.txt").write_text(
        answer({"EID:Slt": "322:2", "State": "Conf", "Status": "Online"}, bad)
    )
    assert found(read(Host(tmp_path))) == {("raid0/322:3", "disk_failing", Severity.WARNING)}


@pytest.mark.parametrize(
    ("facts", "state", "bad"),
    [
        ("SAS, 600 GB, OK, active spare for 1I:3:3", "OK", False),
        ("SAS HDD, 600 GB, Failed, active spare for 1I:3:3", "Failed", True),
        ("SAS, 600 GB, Rebuilding, active spare", "Rebuilding", False),
        ("SAS, ???, Failed, spare", "Failed", True),
    ],
)  # as users of hpacucli, hpssacli and ssacli show them
def test_what_a_spare_stands_for_is_not_its_state(facts: str, state: str, bad: bool) -> None:
    text = (
        f"Smart Array P410 in Slot 1\n\n   array A (SAS)\n\n      physicaldrive 1I:1:7 (port 1I:box 1:bay 7, {facts})\n"
    )

    assert ssacli(text).drives == (Drive("raid1/1I:1:7", "", state, bad),)


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("Optl", None),
        ("Pdgd", "raid_degraded"),
        ("Dgrd", "raid_degraded"),
        ("Rec", "raid_degraded"),
        ("OfLn", "raid_failed"),
    ],
)
def test_each_state_of_a_volume_has_its_fault(state: str, fault: str | None) -> None:
    answer = {"Controllers": [{"Command Status": {"Controller": 1}, "Response Data": {"VD LIST": [
        {"DG/VD": "0/5", "TYPE": "RAID6", "State": state}]}}]}  # fmt: skip

    assert [(c, f) for c, f, _ in found(storcli(json.dumps(answer)))] == ([("raid1/v5", fault)] if fault else [])


def test_a_bad_drive_of_another_group_is_not_the_one_that_a_volume_lacks() -> None:
    raid = Raid((Volume("raid0/v1", "1", "RAID1", "degraded"),), (Drive("raid0/252:7", "2", "UBad", True),))

    assert found(raid) == {
        ("raid0/v1", "raid_degraded", Severity.MAJOR),
        ("raid0/252:7", "disk_failing", Severity.WARNING),
    }


def test_without_a_controller_no_tool_is_started_and_without_a_tool_the_check_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/storcli64.txt").write_text("{}")
    for class_code, vendor in (("20000", "15B3"), ("10400", "8086")):  # Intel's VMD has the class of a RAID controller
        folder = tmp_path / "sys/bus/pci/devices/0000:65:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "uevent").write_text(f"PCI_CLASS={class_code}\nPCI_ID={vendor}:1021\n")
        with pytest.raises(Unavailable, match="no RAID controller"):
            read(Host(tmp_path))
    (folder / "uevent").write_text("PCI_CLASS=10400\nPCI_ID=1000:10E2\n")
    (tmp_path / "commands/storcli64.txt").unlink()
    with pytest.raises(Unavailable, match="neither storcli"):
        read(Host(tmp_path))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"Controllers": {}}', "Controller 0 is dead", "\ufffd"])
def test_an_answer_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="storcli"):
        storcli(text)
    with pytest.raises(ValueError, match="ssacli"):
        ssacli(text)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(["Dgrd", "OfLn", "UBad"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Controllers", "Command Status", "Response Data", "VD LIST", "PD LIST", "State", "DG/VD", "DG"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(anything)
def test_no_answer_makes_the_check_fail_otherwise_than_by_saying_so(told: Any) -> None:
    try:
        raid = storcli(json.dumps({"Controllers": [told]}))
    except ValueError:
        return
    for finding in judge(raid, None, Policy()):
        assert finding.component.startswith("raid")
