"""Why a machine started again: planned, with a cause, or unknown."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host.last_reboot import CHECK, Policy, Start, judge, next_state, read
from nodetriage.checks.model import Scalar, Severity, Unavailable
from nodetriage.checks.model.faults import faults
from nodetriage.checks.readers.boot.journal import JournalLine, last_lines

WORK = JournalLine("user", "python3", "epoch 12 loss 1.92")
PANIC = "Kernel panic - not syncing: Fatal exception in interrupt"
HEAT = "thermal thermal_zone0: critical temperature reached, shutting down"


def kernel(text: str) -> JournalLine:
    return JournalLine("kernel", "", text)


def host_at(root: Path) -> Host:
    return Host(root).for_check(CHECK)


def found(now: Start, before: Start | None = None) -> list[tuple[Severity, Scalar, Scalar]]:
    return [(f.severity, f.evidence["cause"], f.evidence["source"]) for f in judge(now, before, Policy())]


@pytest.mark.parametrize(
    "last",
    [
        JournalLine("init", "systemd", "Reached target reboot.target - System Reboot."),
        JournalLine("init", "systemd", "Reached target Power-Off."),
        JournalLine("init", "systemd-shutdow", "Sending SIGTERM to remaining processes..."),
        JournalLine("system", "systemd-logind", "System is rebooting."),
        JournalLine("system", "systemd-journal", "Journal stopped"),
    ],
)
def test_a_shutdown_by_systemd_is_planned_whatever_else_is_there(last: JournalLine) -> None:
    assert found(Start((WORK, last), pstore=(PANIC,), restart_cause="chassis power control command")) == []


@pytest.mark.parametrize(
    "last",
    [
        JournalLine("user", "systemd", "Reached target shutdown.target - Shutdown."),  # a user's own systemd
        JournalLine("system", "systemd", "Reached target shutdown.target - Shutdown."),  # root's own, at a logout
        JournalLine("user", "logger", "Sending SIGTERM to remaining processes..."),
        JournalLine("system", "sudo", "System is rebooting."),
    ],
)
def test_nobody_but_the_machines_own_systemd_plans_a_reboot(last: JournalLine) -> None:
    assert found(Start((WORK, last))) == [(Severity.WARNING, "unknown", "")]


def test_journald_that_was_only_started_again_is_no_shutdown() -> None:
    stopped = JournalLine("system", "systemd-journal", "Journal stopped")
    assert found(Start((stopped, JournalLine("system", "systemd-journal", "Journal started"), WORK))) != []


@pytest.mark.parametrize(
    ("now", "cause", "source"),
    [
        (Start((WORK,), pstore=("nothing", PANIC)), "kernel_panic", "pstore"),
        (Start((WORK, kernel(PANIC))), "kernel_panic", "journal"),
        (Start((WORK, kernel("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [x:1]"))), "hang", "journal"),
        (Start((WORK,), pstore=("Kernel panic - not syncing: Fatal machine check",)), "hardware_error", "pstore"),
        (Start((WORK,), bert=True), "hardware_error", "bert"),
        (Start((WORK, kernel(HEAT))), "heat", "journal"),
        (Start((WORK, kernel(HEAT)), pstore=(PANIC,)), "heat", "journal"),
        (Start((WORK,), sel=(("bmc_power_supply", "Power Supply PSU1: Power Supply AC lost"),)), "power", "sel"),
        (Start((WORK,), sel=(("bmc_thermal", "Temperature CPU1: Upper Non-recoverable"),)), "heat", "sel"),
        (Start((WORK,), sel=(("bmc_host_stopped", "Watchdog2 OS: Hard reset"),)), "watchdog", "sel"),
        (Start((WORK,), restart_cause="watchdog expired"), "watchdog", "bmc"),
        (Start((WORK,), restart_cause="power-up due to always-restore power policy"), "power", "bmc"),
        (Start((WORK,), sel=(("bmc_drive", "Drive Slot 3: Drive Fault"), ("", "Button"))), "unknown", ""),
        (Start((WORK,), restart_cause="unknown"), "unknown", ""),
    ],
)
def test_an_unplanned_start_is_one_finding_with_the_nearest_cause(now: Start, cause: str, source: str) -> None:
    assert found(now) == [(Severity.WARNING, cause, source)]


def test_a_reset_that_a_person_made_through_the_bmc_is_no_fault() -> None:
    for words in ("chassis power control command", "reset via pushbutton"):
        assert found(Start((WORK,), restart_cause=words)) == [(Severity.INFO, "operator", "bmc")]


def test_a_users_text_names_no_cause() -> None:
    assert found(Start((JournalLine("user", "x", PANIC), kernel(f"x: {PANIC}")))) == [(Severity.WARNING, "unknown", "")]


def test_without_a_journal_only_a_cause_says_that_the_start_was_not_planned() -> None:
    assert found(Start(None, pstore=(PANIC,))) == [(Severity.WARNING, "kernel_panic", "pstore")]
    with pytest.raises(Unavailable, match="nothing tells"):
        found(Start(None))


def test_it_is_reported_once() -> None:
    now = Start((WORK,))
    assert found(now, next_state(None, now)) == []
    assert faults()[CHECK.faults[0]].latching == "86400s"
    assert not faults()[CHECK.faults[0]].trusted


def test_the_recorded_machines_say_what_happened_to_them(hosts: Path) -> None:
    assert list(judge(read(host_at(hosts / "dgx-h100-rebooted")), None, Policy())) == []
    (finding,) = judge(read(host_at(hosts / "dgx-h100-panicked")), None, Policy())
    assert (finding.component, finding.evidence["cause"], finding.evidence["source"]) == (
        "node", "hardware_error", "pstore"
    )  # fmt: skip
    assert "CPU 12: Machine Check Exception" in str(finding.evidence["text"])


def test_a_machine_that_runs_for_days_is_not_asked_about_its_past(hosts: Path) -> None:
    with pytest.raises(Unavailable, match="more than an hour"):
        read(host_at(hosts / "dgx-h100"))


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(("crashed_s", "counts"), [(1_764_754_000, True), (1_760_000_000, False)])
def test_an_archive_of_pstore_counts_if_it_is_of_the_last_boot(tmp_path: Path, crashed_s: int, counts: bool) -> None:
    put(tmp_path, "dev/kmsg", "")
    put(tmp_path, "proc/stat", "cpu 1\nbtime 1764754300\n")
    put(tmp_path, f"var/lib/systemd/pstore/{crashed_s}01/dmesg.txt", f"<0>[  12.511990] {PANIC}\n")

    assert read(host_at(tmp_path)).pstore == ((PANIC,) if counts else ())


def test_the_log_of_the_bmc_counts_from_shortly_before_the_boot(tmp_path: Path) -> None:
    put(tmp_path, "dev/kmsg", "6,1,1000,-;BERT: Error records from previous boot:\n")
    put(tmp_path, "clock.toml", "boottime_s = 300.0\n")
    put(tmp_path, "commands/ipmitool_sel_time_get.txt", "11/12/26 10:00:00 UTC\n")
    put(tmp_path, "commands/ipmitool_sel_elist_last_64.txt",
        "1 | 03/02/26 | 08:10:02 UTC | Critical Interrupt PCIe Err | Bus Fatal Error | Asserted\n"
        "2 | 11/12/26 | 09:50:00 UTC | Power Supply PSU3 Status | Power Supply AC lost | Asserted\n")  # fmt: skip
    put(tmp_path, "commands/ipmitool_chassis_restart_cause.txt", "System restart cause: watchdog expired\n")
    now = read(host_at(tmp_path))

    assert [fault for fault, _ in now.sel] == ["bmc_power_supply"]
    assert (now.restart_cause, now.bert) == ("watchdog expired", True)
    assert found(now) == [(Severity.WARNING, "power", "sel")]
    assert now.unseen[0].startswith("journal: journalctl: not installed")


@given(st.text(max_size=80) | st.builds(json.dumps, st.recursive(st.none() | st.text(), st.lists, max_leaves=4)))
def test_a_journal_of_another_form_is_an_error_and_never_a_plan(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    root = tmp_path_factory.mktemp("any")
    (root / "commands").mkdir()
    (root / "commands/journalctl.txt").write_text(text, errors="replace")
    with pytest.raises((ValueError, Unavailable)):
        last_lines(Host(root))
