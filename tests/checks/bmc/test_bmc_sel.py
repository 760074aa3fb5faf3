"""Which entries of the BMC's event log are new, what they begin and end, and which part they name."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_sel
from nodetriage.checks.model import Finding, Program, Severity, Unavailable
from nodetriage.checks.readers import ipmi, sel

NOW = "12/01/26 06:00:00 UTC"
BUS = "Critical Interrupt PCIe Err | Bus Fatal Error | Asserted"
ECC = "Memory DIMM_C2 | Uncorrectable ECC | Asserted"


def log(*lines: str, now: str = NOW, used_pct: int = 3, overflow: bool = False) -> bmc_sel.EventLog:
    """Lines as ipmitool prints them; what lacks a record and a date gets them, one a second."""
    text = "\n".join(
        line if re.match(r" *[0-9a-f]{1,4} \|", line) else f"{n:4x} | 12/01/26 | 05:41:{n:02} UTC | {line}"
        for n, line in enumerate(lines, 1)
    )
    entries, strange = sel.log_entries(text)
    clock = sel.stamp(now)
    return bmc_sel.EventLog(clock.at_s, used_pct, overflow, entries, clock.zone, strange=strange)


EMPTY = log()


def found(now: bmc_sel.EventLog, before: bmc_sel.EventLog | None = EMPTY) -> list[Finding]:
    kept = bmc_sel.next_state(None, before) if before else None
    return list(bmc_sel.judge(now, kept, bmc_sel.Policy()))


def told(now: bmc_sel.EventLog, before: bmc_sel.EventLog | None = EMPTY) -> list[tuple[str, str, Severity]]:
    return [(f.component, f.fault, f.severity) for f in found(now, before)]


def test_a_new_critical_interrupt_is_critical() -> None:
    [finding] = found(log(BUS))

    assert (finding.component, finding.fault, finding.severity) == (
        "Critical Interrupt PCIe Err",
        "bmc_critical_interrupt",
        Severity.CRITICAL,
    )
    assert finding.evidence["record"] == 1


def test_an_error_that_the_bus_corrected_is_only_recorded() -> None:
    corrected = log("Critical Interrupt PCIe Err | Bus Correctable error | Asserted")

    assert told(corrected) == [("Critical Interrupt PCIe Err", "bmc_bus_corrected", Severity.WARNING)]


def test_entries_that_an_earlier_run_knew_are_found_once() -> None:
    assert told(log(BUS), before=log(BUS)) == []
    assert [f.evidence["record"] for f in found(log(BUS, ECC), before=log(BUS))] == [2]


# The first run of a boot.


@pytest.mark.parametrize(
    ("stamp", "now"),
    [
        ("01/14/25 | 02:00:00 UTC", NOW),
        ("01/14/2025 | 02:00:00", "12/01/2026 06:00:00"),  # ipmitool 1.8.18
        ("12/01/2026 | 01:41:57 AM EST", "12/01/2026 06:00:00 AM EST"),
        ("12/01/26 | 03:41:57 CST", "12/01/26 06:00:00 CST"),  # nobody knows which CST, but it is the same
        ("12/01/26 | 05:41:57 UTC", "12/01/26 06:00:00 CST"),
        ("12/01/26 | 05:41:57 UTC", "what?"),
        (" Pre-Init  |0000000021", NOW),
        (" Pre-Init  |0000000021", " Pre-Init 0000000031"),
        ("13/45/26 | 05:41:57 UTC", NOW),
        ("12/01/26 | 07:41:57 UTC", NOW),  # the clock was set back since
    ],
)
def test_the_first_run_finds_no_entry_that_is_old_or_whose_age_is_not_known(stamp: str, now: str) -> None:
    assert told(log(f"   1 | {stamp} | {BUS}", now=now), before=None) == []


@pytest.mark.parametrize(
    ("stamp", "now"),
    [
        ("12/01/26 | 05:41:57 UTC", NOW),
        ("12/01/2026 | 05:41:57", "12/01/2026 06:00:00"),
        ("12/01/2026 | 12:41:57 AM EST", "12/01/2026 01:00:00 AM EST"),
        ("12/01/26 | 05:41:57 CST", "12/01/26 06:00:00 CST"),
        ("11/01/26 | 01:50:00 EDT", "11/01/26 01:10:00 EST"),  # the night in which the clock is set back
        ("12/01/26 | 02:41:57 -03", "12/01/26 06:00:00 UTC"),
        ("2026-12-01 | 06:41:57 CET", "2026-12-01 06:59:59 CET"),
        ("01.12.2026 | 06:41:57", "01.12.2026 06:59:59"),
    ],
)
def test_what_may_have_rebooted_the_machine_counts_and_leaves_the_job_alone(stamp: str, now: str) -> None:
    assert [f[1:] for f in told(log(f"   1 | {stamp} | {BUS}", now=now), before=None)] == [
        ("bmc_critical_interrupt", Severity.MAJOR)
    ]


def test_a_panics_text_is_as_old_as_the_entry_before_it() -> None:
    stop = "OS Critical Stop #0x46 | Run-time critical stop | Asserted"
    panic = ("   2 | Linux kernel panic: Fatal excep", "   3 | Linux kernel panic: tion in int")

    [finding] = found(log(stop, *panic), before=None)
    assert (finding.component, finding.fault, finding.evidence["count"]) == ("OS Critical Stop", "bmc_host_stopped", 3)
    assert told(log(f"   1 | 01/14/25 | 02:00:00 UTC | {stop}", *panic), before=None) == []


def test_a_critical_interrupt_that_names_no_part_is_a_warning_where_the_machine_starts() -> None:
    bare = "Critical Interrupt #0xff | Bus Fatal Error | Asserted"
    start = "System Event #0x20 | OEM System boot event | Asserted"

    assert [f[2] for f in told(log(bare), before=None)] == [Severity.WARNING]
    assert [f[2] for f in told(log(start, bare))] == [Severity.WARNING]
    assert [f[2] for f in told(log(bare))] == [Severity.CRITICAL]
    assert [f[2] for f in told(log(start, BUS))] == [Severity.CRITICAL]
    assert [f[2] for f in told(log("Critical Interrupt #0xff |  | Asserted"))] == [Severity.WARNING]


# Later runs.


def test_a_log_that_another_cleared_starts_anew() -> None:
    before = log(f"  40 | 11/01/26 | 12:00:00 UTC | {BUS}", now="12/01/26 05:55:00 UTC")
    after = log(f"   1 | 12/01/26 | 05:58:00 UTC | {ECC}")

    assert [f.evidence["record"] for f in found(after, before)] == [1]


def test_old_entries_that_come_into_view_when_others_are_deleted_are_not_new() -> None:
    before = log(*(f"{n:4x} | 11/{n:02}/26 | 12:00:00 UTC | {BUS}" for n in range(20, 30)))
    after = log(*(f"{n:4x} | 11/{n:02}/26 | 12:00:00 UTC | {ECC}" for n in range(10, 20)))
    partly = log(*(f"{n:4x} | 11/{n:02}/26 | 12:00:00 UTC | {BUS}" for n in range(15, 25)))

    assert told(after, before) == []
    assert told(partly, before) == []


def test_a_clock_that_jumps_back_hides_no_new_entry_and_makes_no_old_one_new() -> None:
    before = log(f"   1 | 11/01/26 | 12:00:00 UTC | {BUS}")
    jumped = log(
        f"   1 | 11/01/26 | 12:00:00 UTC | {BUS}",
        f"   2 |  Pre-Init  |0000000021 | {ECC}",
        f"   3 | 01/01/20 | 12:00:00 UTC | {ECC}",
        now="01/01/20 12:00:30 UTC",
    )

    [finding] = found(jumped, before)
    assert (finding.evidence["record"], finding.evidence["count"]) == (2, 2)


def test_an_answer_cut_short_makes_no_old_entry_new() -> None:
    state = bmc_sel.next_state(bmc_sel.next_state(None, log(BUS)), log())

    assert list(bmc_sel.judge(log(BUS), state, bmc_sel.Policy())) == []


def test_record_numbers_that_start_again_at_one_are_new_behind_those_that_are_known() -> None:
    before = log(f"fffe | 12/01/26 | 05:00:00 UTC | {BUS}")
    after = log(f"fffe | 12/01/26 | 05:00:00 UTC | {BUS}", f"   1 | 12/01/26 | 05:58:00 UTC | {ECC}")

    assert [f.component for f in found(after, before)] == ["Memory DIMM_C2"]


@pytest.mark.parametrize("full", [log(used_pct=90), log(overflow=True)])
def test_a_full_log_is_a_warning_because_it_only_looks_quiet(full: bmc_sel.EventLog) -> None:
    assert [f.fault for f in found(full, full)] == ["bmc_log_full"]


def test_a_burst_is_one_finding_with_its_worst_and_its_count() -> None:
    fan = "Fan Fan 3 | Lower {} going low | Asserted"
    [finding] = found(log(*(fan.format(w) for w in ("Non-critical", "Critical", "Non-recoverable", "Critical"))))

    assert (finding.severity, finding.evidence["count"], finding.evidence["record"]) == (Severity.MAJOR, 4, 3)


# What ends.


def over(*lines: str, then: tuple[str, ...]) -> list[tuple[str, str]]:
    before = bmc_sel.next_state(bmc_sel.next_state(None, EMPTY), log(*lines))
    return list(bmc_sel.clears(log(*lines, *then), before))


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (
            "Power Supply PSU1 | Power Supply AC lost | Asserted",
            "Power Supply PSU1 | Power Supply AC lost | Deasserted",
        ),
        ("Power Supply PSU1 | Presence detected | Deasserted", "Power Supply PSU1 | Presence detected | Asserted"),
        ("Power Supply Red | Redundancy Lost | Asserted", "Power Supply Red | Fully Redundant | Asserted"),
        ("Fan Fan 3 | Transition to Critical from less severe | Asserted", "Fan Fan 3 | Transition to OK | Asserted"),
        ("Temperature T | Upper Critical going high | Asserted", "Temperature T | Upper Critical going low | Asserted"),
        ("Voltage V | State Asserted | Asserted", "Voltage V | State Deasserted | Asserted"),
        ("Processor P1 | Throttled | Asserted", "Processor P1 | Throttled | Deasserted"),
    ],
)
def test_what_takes_an_event_back_ends_its_fault(begins: str, ends: str) -> None:
    [(component, fault, _)] = told(log(begins))

    assert over(begins, then=(ends,)) == [(component, fault)]
    assert told(log(begins, ends)) == []


def test_another_event_of_the_same_part_stays_open() -> None:
    lost, failed = "Power Supply PSU1 | Power Supply AC lost |", "Power Supply PSU1 | Failure detected | Asserted"

    assert over(f"{lost} Asserted", failed, then=(f"{lost} Deasserted",)) == []
    assert over(f"{lost} Asserted", then=(f"{lost.replace('PSU1', 'PSU2')} Deasserted",)) == []


@pytest.mark.parametrize("event", [BUS, ECC, "Processor CPU0 | IERR | Asserted"])
def test_lost_data_does_not_come_back_with_the_end_of_its_event(event: str) -> None:
    assert over(event, then=(event.replace("Asserted", "Deasserted"),)) == []


def test_the_end_of_an_event_that_nobody_saw_begin_is_nothing() -> None:
    assert told(log("Power Supply PSU3 | Power Supply AC lost | Deasserted")) == []


# Which part.


@pytest.mark.parametrize(
    ("line", "component"),
    [
        ("Memory ECC | Uncorrectable ECC (UnCorrectable ECC |  DIMMA1) | Asserted", "DIMM A1"),
        ("Critical Interrupt X | PCI SERR (PCI SERR |PCI bus:3a device:03 function:0) | Asserted", "0000:3a:03.0"),
        ("Critical Interrupt #0xa1 | Bus Fatal Error (Bus fatal:B5d/D03/F02) | Asserted", "0000:5d:03.2"),
        ("Unknown PCIe | (I/O Error |Slot 3) | Asserted", "Slot 3"),
        ("Power Supply STATUS_PSU0 | Failure detected () | Asserted", "Power Supply STATUS_PSU0"),
        ("Module / Board STATUS_GB_GPU |  | Deasserted", "Module / Board STATUS_GB_GPU"),
        ("OS Stop/Shutdown #0x46 | Run-time critical stop | Asserted", "OS Critical Stop"),
    ],
)
def test_the_component_is_the_part_that_the_entry_names(line: str, component: str) -> None:
    assert [f[0] for f in told(log(line))] == [component]


def test_freeipmi_names_the_same_dimm_and_device() -> None:
    lines = (
        "1 | Dec-01-2026 | 05:41:57 | ECC | Memory | Critical | Assertion Event | Uncorrectable memory error ; DIMM A1",
        "2 | Dec-01-2026 | 05:41:58 | X | Critical Interrupt | N/A | N/A | PCI SERR ; Bus 58, Device 3, Function 0",
        "3 | N/A | N/A | N/A | N/A | N/A | N/A | OEM defined = 46h 61h",
    )
    assert [f[0] for f in told(log(*lines))] == ["DIMM A1", "0000:3a:03.0", "bmc"]


def test_the_low_side_of_a_margin_is_heat_and_its_high_side_is_not() -> None:
    low, high = "Lower Critical going low | Asserted", "Upper Critical going high | Asserted"

    assert [f[2] for f in told(log(f"Temperature CPU0_Margin_Temp | {low}"))] == [Severity.MAJOR]
    assert [f[2] for f in told(log(f"Temperature Inlet Temp | {low}"))] == [Severity.WARNING]
    assert told(log(f"Temperature CPU0_Margin_Temp | {high}")) == []


# What is not believed.


@pytest.mark.parametrize(
    "line",
    [
        "   1 | 11/30/26 | 12:00:00 UTC | OEM record df | Memory #0x12 | Uncorrectable ECC | Asserted",
        "   1 | OEM record e0 | 000137 | Memory #0x12 | Uncorrectable ECC | Asserted",
        "   1 | 11/30/26 | 12:00:00 UTC | System Event #0x53 | Memory Uncorrectable ECC | Asserted",
        "   1 | 11/30/26 | 12:00:00 UTC | Unknown Memory #0x53 | Uncorrectable ECC | Asserted",
        "   1 | 11/30/26 | 12:00:00 UTC | System Event #0x53 | x (Memory #0x1 | Uncorrectable ECC) | Asserted",
    ],
)
def test_text_that_the_system_or_a_maker_put_into_the_log_is_no_sensor_and_no_event(line: str) -> None:
    assert all(f[2] == Severity.INFO for f in told(log(line)))


def test_the_text_of_a_panic_is_no_entry_of_another_sensor() -> None:
    forged = "   1 | Linux kernel panic: a | b | Memory #0x12 | Uncorrectable ECC | Asserted"

    assert [f[:2] for f in told(log(forged))] == [("OS Critical Stop", "bmc_host_stopped")]


def test_a_line_of_no_known_form_is_an_info_and_the_others_count() -> None:
    text = log("   1 | OEM record e0 | 000000000000000000000000002f", "   2 | what | is", "   3 | x", ECC)

    assert told(text) == [
        ("bmc", "bmc_event_unknown", Severity.INFO),
        ("Memory DIMM_C2", "bmc_memory_uncorrectable", Severity.CRITICAL),
        ("bmc", "bmc_event_unknown", Severity.INFO),
    ]
    assert told(text, before=text) == []


def test_control_characters_and_long_texts_do_not_reach_a_component() -> None:
    [finding] = found(log(f"Memory DIMM\x1b[2J\x00{'A' * 9000} | Uncorrectable ECC | Asserted"))

    assert finding.component.isprintable()
    assert len(finding.component) <= 200


@given(st.lists(st.text(max_size=200), max_size=20))
def test_no_text_crashes_the_parser_and_every_kept_column_is_bounded(lines: list[str]) -> None:
    entries, strange = sel.log_entries("\n".join(lines))

    assert len(entries) + strange <= len("\n".join(lines).splitlines())
    assert all(len(e.event) <= 2000 and e.sensor.isprintable() for e in entries)


_WORDS = "7,12/01/26,05:41:57 UTC,Memory DIMM,Uncorrectable ECC,Asserted,Deasserted,OEM record e0,(,),Fan 1"
_FIELDS = st.sampled_from([*_WORDS.split(","), "Linux kernel panic: x", "Dec-01-2026", "N/A", "Assertion Event", ""])


@given(st.lists(st.lists(_FIELDS, max_size=9).map(" | ".join), max_size=12), st.booleans())
def test_any_mix_of_columns_is_judged_and_carried_to_the_next_run(lines: list[str], first: bool) -> None:
    entries, strange = sel.log_entries("\n".join(lines))
    now = replace(EMPTY, entries=entries, strange=strange)
    before = None if first else bmc_sel.next_state(None, EMPTY)

    list(bmc_sel.judge(now, before, bmc_sel.Policy()))
    again = bmc_sel.next_state(before, now)
    if entries:
        assert list(bmc_sel.judge(now, again, bmc_sel.Policy())) == []
        assert list(bmc_sel.clears(now, again)) == []


class WithoutIpmitool(Host):
    """A machine whose FreeIPMI gives one answer to each program."""

    def __init__(self, **answers: Program) -> None:
        super().__init__("/")
        self.answers = answers

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        name = argv[0].replace("-", "_")
        if name not in self.answers:
            raise Unavailable(f"{argv[0]}: not installed")
        return self.answers[name]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("ipmi-sel: could not find inband device", Unavailable),
        ("ipmi-sel: BMC busy", ipmi.Silent),
        ("ipmi-sel: session timeout", ipmi.Silent),
        ("ipmi-sel: permission denied", ValueError),
    ],
)
def test_what_freeipmi_refuses_is_no_empty_log(words: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        bmc_sel.read(WithoutIpmitool(ipmi_sel=Program(1, "", words), bmc_device=Program(0, "", "")))


def test_without_both_tools_the_check_is_skipped_and_names_ipmitool() -> None:
    with pytest.raises(Unavailable, match="ipmitool"):
        bmc_sel.read(WithoutIpmitool())
