"""What ipmitool says of power, fans, temperatures and the event log."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_power, bmc_sel, bmc_sensors
from nodetriage.checks.model import Finding, Program, Severity, Unavailable
from nodetriage.checks.readers import ipmi

AT_S = 1_800_000_000.0
INTERRUPT = ipmi.LogEntry(7, AT_S, "Critical Interrupt PCIe Err", "Bus Fatal Error", asserted=True)
LOG = bmc_sel.EventLog(AT_S, 3, overflow=False, entries=())


def logged(*entries: ipmi.LogEntry, before: bmc_sel.EventLog | None = LOG) -> list[Finding]:
    return list(bmc_sel.judge(replace(LOG, entries=entries), before, bmc_sel.Policy()))


class Bmc(Host):
    """A machine whose ipmitool gives these answers, one after the other."""

    def __init__(self, *answers: Program) -> None:
        super().__init__("/")
        self.answers = list(answers)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        return self.answers.pop(0)


def test_a_sensor_without_a_reading_says_nothing() -> None:
    silent = ipmi.sensors("GPU5 Temp | 05h | ns | 11.5 | Disabled\nFan7F | 77h | ns | 29.7 | No Reading\n")

    assert [sensor.read for sensor in silent] == [False, False]


def test_a_supply_that_was_there_and_is_not_is_missing() -> None:
    here = ipmi.Sensor("PSU1 Status", "ok", "10.1", "Presence detected")
    before = bmc_power.Power((here,), (), ("PSU1 Status",))
    now = bmc_power.Power((replace(here, text="Absent"),), (), ())

    assert [f.fault for f in bmc_power.judge(now, before, bmc_power.Policy())] == ["psu_missing"]
    assert bmc_power.next_state(before, now).seen == ("PSU1 Status",)


def test_an_empty_bay_is_no_supply_that_went_missing() -> None:
    bay = bmc_power.Power((ipmi.Sensor("PSU4 Status", "ok", "10.4", "Absent"),), (), ())

    assert list(bmc_power.judge(bay, bay, bmc_power.Policy())) == []


def test_a_new_critical_interrupt_removes_the_node() -> None:
    [finding] = logged(INTERRUPT)

    assert (finding.fault, finding.severity) == ("bmc_critical_interrupt", Severity.CRITICAL)
    assert finding.evidence["record"] == 7


def test_an_error_that_the_bus_corrected_is_only_recorded() -> None:
    [finding] = logged(replace(INTERRUPT, event="Bus Correctable error"))

    assert (finding.fault, finding.severity) == ("bmc_bus_corrected", Severity.WARNING)


def test_the_end_of_an_event_is_no_event() -> None:
    assert logged(replace(INTERRUPT, asserted=False)) == []


def test_an_entry_from_before_the_repair_drains_nothing() -> None:
    assert logged(replace(INTERRUPT, at_s=AT_S - 7200), before=None) == []


def test_what_may_have_rebooted_the_machine_is_told_and_leaves_the_job_alone() -> None:
    [finding] = logged(replace(INTERRUPT, at_s=AT_S - 60), before=None)

    assert finding.severity == Severity.MAJOR


def test_a_clock_that_was_never_set_makes_an_old_entry_no_new_one() -> None:
    assert logged(replace(INTERRUPT, at_s=-1), before=None) == []


def test_a_log_that_another_cleared_starts_anew() -> None:
    again = replace(INTERRUPT, record=1, at_s=AT_S + 900)

    assert [f.evidence["record"] for f in logged(again, before=replace(LOG, entries=(INTERRUPT,)))] == [1]


def test_an_answer_cut_short_makes_no_old_entry_new() -> None:
    whole, cut = replace(LOG, entries=(INTERRUPT,)), replace(LOG, entries=())

    assert logged(INTERRUPT, before=bmc_sel.next_state(whole, cut)) == []


@pytest.mark.parametrize("log", [replace(LOG, used_pct=90), replace(LOG, overflow=True)])
def test_a_full_log_is_said_because_it_only_looks_quiet(log: bmc_sel.EventLog) -> None:
    assert [f.fault for f in bmc_sel.judge(log, log, bmc_sel.Policy())] == ["bmc_log_full"]


def test_a_bmc_that_is_busy_is_asked_again() -> None:
    busy = Program(1, "", "Get SDR 0005 command failed: Node busy\n")
    bmc = Bmc(busy, busy, Program(0, "Fan1 | 03h | ok | 29.1 | 8400 RPM\n", ""))

    assert ipmi.sensors(ipmi.ask(bmc, "sdr", "type", "Fan"))[0].text == "8400 RPM"


def test_a_machine_without_a_bmc_is_skipped() -> None:
    words = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory\n"
    with pytest.raises(Unavailable, match="no BMC"):
        bmc_sensors.read(Bmc(Program(1, "", words)))


def test_a_bmc_out_of_reach_is_not_answering() -> None:
    air = bmc_sensors.read(Bmc(Program(1, "", "Error: Unable to establish IPMI v2 / RMCP+ session\n")))

    assert [f.fault for f in bmc_sensors.judge(air, None, bmc_sensors.Policy())] == ["bmc_not_answering"]


def test_a_bmc_that_refuses_is_not_well() -> None:
    with pytest.raises(ValueError, match="Insufficient privilege"):
        ipmi.ask(Bmc(Program(1, "", "Get SEL Info command failed: Insufficient privilege level\n")), "sel", "info")


@given(st.text())
def test_no_answer_of_ipmitool_is_read_as_something_it_is_not(text: str) -> None:
    for parse in (ipmi.sensors, ipmi.log_entries):
        try:
            parse(text)
        except ValueError as error:
            assert "expected" in str(error)  # noqa: PT017 the words are for the person who must find the BMC


@pytest.mark.parametrize(
    "line",
    [
        "   1 | 11/30/26 | 12:00:00 UTC | OEM record df | Memory #0x12 | Uncorrectable ECC | Asserted",
        "   1 | OEM record e0 | 000137 | Memory #0x12 | Uncorrectable ECC | Asserted",
        "   1 | Linux kernel panic: a | b | Memory #0x12 | Uncorrectable ECC | Asserted",
        "   1 | 11/30/26 | 12:00:00 UTC | System Event #0x53 | Memory Uncorrectable ECC | Asserted",
        "   1 | 11/30/26 | 12:00:00 UTC | Unknown Memory #0x53 | Uncorrectable ECC | Asserted",
    ],
)
def test_text_that_the_system_or_a_maker_put_into_the_log_is_no_sensor_and_no_event(line: str) -> None:
    (entry,) = ipmi.log_entries(line)

    assert logged(entry) == []


def test_a_record_without_a_date_does_not_hide_the_one_behind_it() -> None:
    text = "   2 | OEM record e0 | 000000000000000000000000002f\n"
    text += "   3 | 11/12/26 | 09:59:41 UTC | Memory DIMM_C2 | Uncorrectable ECC | Asserted\n"

    assert [f.fault for f in logged(*ipmi.log_entries(text))] == ["bmc_memory_uncorrectable"]


def test_the_recorded_bmc_gives_its_sensors_and_its_log(hosts: Path) -> None:
    host = Host(hosts / "dgx-h100")

    assert [unit.text for unit in bmc_power.read(host).units] == ["Fully Redundant"]
    assert [entry.record for entry in bmc_sel.read(host).entries] == [1, 2, 3]
