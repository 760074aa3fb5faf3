"""What disks say of their own health."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Severity, Unavailable
from nodetriage.checks.readers import smart
from nodetriage.checks.readers.disks import Disk
from nodetriage.checks.readers.smart import Smart
from nodetriage.checks.storage.disk_health import Policy, judge, read

WELL = Smart(passed=True, critical_warning=0, spare_pct=100, spare_threshold_pct=10, used_pct=3, media_errors=7)
DISK = Disk("0000:02:00.0", "/dev/nvme1", "live", WELL)


def found(now: Disk, before: Disk | None = None, policy: Policy | None = None) -> dict[str, Severity]:
    findings = judge((now,), (before,) if before else None, policy or Policy())
    return {f.fault: f.severity for f in findings}


def with_smart(**changes: Any) -> Disk:
    return replace(DISK, smart=replace(WELL, **changes))


def test_media_errors_of_the_past_are_history_and_new_ones_a_fault() -> None:
    assert found(DISK) == {}
    assert found(DISK, DISK) == {}
    assert found(with_smart(media_errors=8), DISK) == {"disk_media_errors": Severity.MAJOR}
    assert found(with_smart(media_errors=0), DISK) == {}  # another disk in its place


def sas(*uncorrected: int, pending: int = 0) -> Smart:
    pages = {n: {"total_uncorrected_errors": c} for n, c in zip(("read", "write", "verify"), uncorrected, strict=False)}
    report = {"smart_status": {"passed": True}, "scsi_grown_defect_list": 2, "scsi_pending_defects": {"count": pending}}
    return smart.smartctl(json.dumps({**report, "scsi_error_counter_log": pages}))


def test_new_uncorrected_errors_and_pending_defects_of_a_sas_disk_are_found() -> None:
    before, now = (replace(DISK, smart=sas(3, 0, 0)), replace(DISK, smart=sas(3, 1, 0)))

    assert found(before) == found(before, before) == {}
    assert found(now, before) == {"disk_media_errors": Severity.MAJOR}
    assert found(replace(DISK, smart=sas(3, pending=2)), before) == {"disk_pending_sectors": Severity.WARNING}
    assert sas().media_errors is None


def test_spare_below_the_maker_s_threshold_is_found_though_the_summary_says_passed(hosts: Path) -> None:
    """A real disk: spare 0 of 11, critical_warning 0, smart_status passed."""
    disks = {d.component: d for d in read(Host(hosts / "dgx-h100-disk-failing"))}
    worn = disks["0000:02:00.0"]

    assert worn.smart is not None
    assert (worn.smart.passed, worn.smart.critical_warning, worn.smart.spare_pct) == (True, 0, 0)
    assert found(worn) == {"disk_spare_low": Severity.MAJOR}


def test_an_answer_without_health_information_is_found_and_not_taken_for_well(hosts: Path) -> None:
    """A real disk whose SMART log could not be read: exit status 4."""
    silent = next(d for d in read(Host(hosts / "dgx-h100-disk-failing")) if d.device == "/dev/nvme2")

    assert silent.smart is None
    assert found(silent) == {"disk_unreadable": Severity.WARNING}


@pytest.mark.parametrize(
    ("bits", "faults"),
    [
        (1, {"disk_spare_low": Severity.MAJOR}),
        (2, {"disk_hot": Severity.WARNING}),
        (4, {"disk_failing": Severity.CRITICAL}),
        (8, {"disk_failing": Severity.CRITICAL}),
        (16, {"disk_failing": Severity.MAJOR}),
        (16 + 8, {"disk_failing": Severity.CRITICAL}),
        (32, {"disk_failing": Severity.WARNING}),
        (64 + 128, {}),
    ],
)
def test_each_critical_warning_has_its_fault(bits: int, faults: dict[str, Severity]) -> None:
    assert found(with_smart(critical_warning=bits, passed=False)) == faults


def test_a_disk_of_another_kind_is_judged_by_its_summary() -> None:
    assert found(Disk("sda", "/dev/sda", smart=Smart(passed=False))) == {"disk_failing": Severity.CRITICAL}
    assert found(Disk("sda", "/dev/sda", smart=Smart(passed=True, pending_sectors=8))) == {
        "disk_pending_sectors": Severity.WARNING
    }


def test_a_disk_that_is_only_worn_is_not_failing() -> None:
    worn = with_smart(critical_warning=4, used_pct=100, spare_pct=100, passed=False)

    assert found(worn) == {"disk_worn": Severity.WARNING}


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"critical_warning": 4, "used_pct": 99}, True),
        ({"critical_warning": 4 + 8, "used_pct": 100}, True),
        ({"critical_warning": 4 + 1, "used_pct": 100}, True),
        ({"critical_warning": 0, "used_pct": 100}, False),
    ],
)
def test_a_worn_disk_with_another_trouble_is_failing(changes: dict[str, int], failing: bool) -> None:
    assert ("disk_failing" in found(with_smart(**changes))) == failing


def test_the_finding_says_which_bits_were_set() -> None:
    (finding,) = judge((with_smart(critical_warning=4 + 8 + 16),), None, Policy())

    assert finding.evidence["reason"] == "unreliable read_only no_power_loss_protection"


@pytest.mark.parametrize("state", ["dead", "resetting", "connecting", "deleting"])
def test_a_controller_that_is_not_live_is_not_asked(tmp_path: Path, state: str) -> None:
    (tmp_path / "sys/class/nvme/nvme0").mkdir(parents=True)
    (tmp_path / "sys/class/nvme/nvme0/state").write_text(f"{state}\n")
    (tmp_path / "errors.toml").write_text('"/commands/smartctl_--json_-i_-H_-A_dev_nvme0.txt" = "ETIMEDOUT"\n')

    assert [found(d) for d in read(Host(tmp_path))] == [{}]


def test_without_a_tool_the_check_is_skipped_and_not_ok(tmp_path: Path) -> None:
    (tmp_path / "sys/class/nvme/nvme0").mkdir(parents=True)
    (tmp_path / "sys/class/nvme/nvme0/state").write_text("live\n")

    with pytest.raises(Unavailable, match="smartctl"):
        list(judge(read(Host(tmp_path)), None, Policy()))


def test_nvme_is_asked_where_there_is_no_smartctl(tmp_path: Path) -> None:
    (tmp_path / "sys/class/nvme/nvme0").mkdir(parents=True)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/nvme.txt").write_text(
        '{"critical_warning": {"value": 4, "available_spare": 0}, "avail_spare": 90, "spare_thresh": 10, '
        '"percent_used": 101, "media_errors": "340282366920938463463374607431768211455"}'
    )

    (disk,) = read(Host(tmp_path))

    assert (disk.component, disk.smart.critical_warning if disk.smart else None) == ("nvme0", 4)
    assert found(disk) == {"disk_worn": Severity.WARNING}


def test_a_disk_that_is_gone_is_missed_where_somebody_says_how_many_there_are() -> None:
    assert found(DISK, policy=Policy(expected_nvme=2)) == {"disk_missing": Severity.WARNING}
    assert found(DISK, policy=Policy(expected_nvme=1)) == {}
    assert [f.fault for f in judge((), None, Policy(expected_nvme=1))] == ["disk_missing"]
    with pytest.raises(Unavailable):
        list(judge((), None, Policy()))


def test_two_disks_that_do_not_answer_are_enough_to_leave_the_rest_alone(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"sys/class/nvme/nvme{i}").mkdir(parents=True)
    (tmp_path / "errors.toml").write_text(
        "".join(f'"/commands/smartctl_--json_-i_-H_-A_dev_nvme{i}.txt" = "ETIMEDOUT"\n' for i in range(5))
    )

    disks = read(Host(tmp_path))

    assert [("did not answer" in d.error, "not asked" in d.error) for d in disks[:2]] == [(True, False)] * 2
    assert ["not asked" in d.error for d in disks[2:]] == [True] * 3


def test_a_virtual_disk_without_smart_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "sys/block/sda").mkdir(parents=True)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/smartctl.txt").write_text(
        '{"smartctl": {"exit_status": 4}, "smart_support": {"available": false}}'
    )

    assert [found(d) for d in read(Host(tmp_path))] == [{}]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", "Segmentation fault", "{}", '{"smart_status": 3}', "\ufffd", "[" * 9999]
)
def test_an_answer_that_is_no_health_information_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="smartctl"):
        smart.smartctl(text)
    with pytest.raises(ValueError, match="nvme"):
        smart.nvme(text)


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(
        ["smart_status", "passed", "nvme_smart_health_information_log", "critical_warning", "value", "available_spare",
         "ata_smart_attributes", "table", "id", "raw", "smartctl", "messages", "avail_spare", "media_errors"]), inner)),
    max_leaves=12,
)  # fmt: skip


@given(anything)
def test_any_json_is_values_or_an_error(value: Any) -> None:
    for parse in (smart.smartctl, smart.nvme):
        try:
            told = parse(json.dumps(value))
        except ValueError:
            continue
        assert all(n is None or n >= 0 for n in (told.critical_warning, told.spare_pct, told.media_errors))
