"""Every standard event of a BMC's log has the severity it deserves, in the words of ipmitool and of FreeIPMI.

data/sel_events.tsv has the events of IPMI 2.0, tables 42-2 and 42-3, each with what the tools print, recorded from
ipmitool 1.8.18 and 1.8.19 and FreeIPMI 1.6 at a simulated BMC, and with the severity that the event deserves.
"""

import csv
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetriage.checks.bmc import bmc_sel
from nodetriage.checks.model import Severity
from nodetriage.checks.readers import sel
from nodetriage.checks.rules.event_log import redfish_rules, sel_follow, sel_rules

ROOT = Path(__file__).resolve().parents[3]
SEVERITIES = ("info", "warning", "major", "critical")
Row = dict[str, str]


def rows() -> list[Row]:
    with (ROOT / "tests/checks/data/sel_events.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def judged(line: str) -> str:
    entries, strange = sel.log_entries(line)
    assert (len(entries), strange) == (1, 0), line
    worst = max((b.severity for b in sel_follow.follow((), entries).begun), default=Severity.INFO)
    return worst.name.lower()


def ipmitool_lines(row: Row) -> Iterator[str]:
    for sensor in ("Sensor 1", "#0x41"):
        what = f"{row['sensor_type']} {sensor} | {{}} | {row['direction']}"
        yield "   7 | 12/01/26 | 05:41:57 UTC | " + what.format(row["ipmitool"])
        yield "   7 | 12/01/2026 | 05:41:57 | " + what.format(row["ipmitool_1_8_18"] or row["ipmitool"])


def freeipmi_line(row: Row) -> str:
    direction = {"Asserted": "Assertion Event", "Deasserted": "Deassertion Event"}[row["direction"]]
    kind = row["freeipmi_type"] or row["sensor_type"]
    columns = ("7", "Dec-01-2026", "05:41:57", "Sensor 1", kind, row["freeipmi_state"], direction, row["freeipmi"])
    return " | ".join(columns)


def left_out() -> dict[tuple[str, str], tuple[str, str]]:
    """docs/checks.md: by type and event, what ipmitool's words and what FreeIPMI's give instead."""
    text = (ROOT / "docs/checks.md").read_text().partition("### Events that the log alone cannot tell")[2]
    table = re.findall(r"^\| `(.+?)` \| `(.*?)` \| (\w+) \| (\w+) \| .+ \|$", text, re.MULTILINE)
    return {(kind, event.strip()): (ipmitool, freeipmi) for kind, event, ipmitool, freeipmi in table}


def wanted() -> list[tuple[Row, str, str]]:
    """Each row with what ipmitool's words deserve and what FreeIPMI's.

    ipmitool prints the same words for several rows. Those without event data decide, or else the harmless ones.
    """
    alike: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows():
        alike[row["sensor_type"], row["ipmitool"], row["direction"]].append(row)
    known = left_out()
    found = []
    for (kind, event, _), group in alike.items():
        plain = [row["suggested"] for row in group if "data" not in row["key"]]
        deserved = min(plain or [row["suggested"] for row in group], key=SEVERITIES.index)
        for row in group:
            begins = SEVERITIES.index(row["suggested"]) > 0
            ipmitool, freeipmi = known.get((kind, event), ("", "")) if begins else ("", "")
            same = {"same": "", "": ""}
            found.append(
                (row, same.get(ipmitool, ipmitool) or deserved, same.get(freeipmi, freeipmi) or row["suggested"])
            )
    return found


@pytest.mark.parametrize("suggested", SEVERITIES)
def test_every_standard_event_has_its_severity_in_the_words_of_both_ipmitools(suggested: str) -> None:
    chosen = [(row, want) for row, want, _ in wanted() if row["suggested"] == suggested]
    wrong = {line: judged(line) for row, want in chosen for line in ipmitool_lines(row) if judged(line) != want}

    assert len(chosen) > 90
    assert wrong == {}


@pytest.mark.parametrize("suggested", SEVERITIES)
def test_every_standard_event_has_its_severity_in_the_words_of_freeipmi(suggested: str) -> None:
    chosen = [(freeipmi_line(row), want) for row, _, want in wanted() if row["suggested"] == suggested]

    assert {line: judged(line) for line, want in chosen if judged(line) != want} == {}


def test_nothing_harmless_is_worse_than_an_info() -> None:
    harmless = [row for row, want, _ in wanted() if row["suggested"] == "info" and want == "info"]

    assert len(harmless) > 1300
    assert {judged(line) for row in harmless for line in ipmitool_lines(row)} == {"info"}


def test_what_is_left_out_is_a_serious_event_that_is_really_judged_otherwise() -> None:
    known = {(row["sensor_type"], row["ipmitool"]) for row in rows()}

    assert left_out()
    assert set(left_out()) <= known


def test_the_check_names_every_fault_that_the_table_can_give() -> None:
    table = tomllib.loads((ROOT / "checks/nodetriage/checks/rules/event_log/sel_events.toml").read_text())
    given = {fault for t in table["types"].values() for fault in (t["fault"], *t.get("events", {}))}
    given |= {rule["fault"] for rule in table["named"] if "fault" in rule}

    assert set(sel_rules.FAULTS) == given | {sel_rules.UNKNOWN}
    assert set(bmc_sel.CHECK.faults) == given | {sel_rules.UNKNOWN, "bmc_log_full", *redfish_rules.FAULTS}
    assert set(table["lasting"]) <= given


def test_every_event_of_the_table_is_one_that_a_tool_prints_or_that_a_translation_gives() -> None:
    table = tomllib.loads((ROOT / "checks/nodetriage/checks/rules/event_log/sel_events.toml").read_text())
    printed = {text.lower() for row in rows() for text in (row["ipmitool"], row["freeipmi"])}
    printed |= set(table["freeipmi"].values())
    named = {
        event.lstrip("!")
        for t in table["types"].values()
        for s in SEVERITIES
        for event in t.get(s, ())
        if "." not in event
    }

    assert named - printed == set()


# What makers write and `bmc_sel` judges otherwise than it deserves, with what it gives and why.
MAKERS_LEFT_OUT = {
    "Linux kernel panic: tion": ("major", "a later piece of a panic's text looks like the first one"),
    "Linux kernel panic: to mount r | blah blah": ("major", "likewise"),
    "System Event NAME | Undetermined system hardware failure": (
        "major",
        "it names no part, OpenBMC writes it for any",
    ),
    "System Event NAME | Undetermined system hardware failure ()": ("major", "likewise"),
    "Unknown NAME | ": ("info", "an OEM sensor without words is also what boards write at each start"),
    "Processor NAME | ": ("info", "an OEM event type without words"),
    "System Firmwares NAME | ": ("info", "likewise"),
    "Critical Interrupt NAME | ": ("warning", "it says neither what happened nor where"),
    "Power Supply PSU Redundancy | Non-Redundant: Insufficient Resources": ("critical", "as the standard's event"),
}


def makers() -> list[Row]:
    with (ROOT / "tests/checks/data/sel_oem.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_what_makers_write_has_its_severity() -> None:
    wrong = {}
    for row in makers():
        text = row["ipmitool"].replace("NAME |", "Sensor 1 |", 1)
        line = f"   7 | {text}" if row["dated"] == "no" else f"   7 | 12/01/26 | 05:41:57 UTC | {text}"
        told = row["ipmitool"].removesuffix(" | Asserted").removesuffix("| Asserted")
        serious = row["suggested"] in ("major", "critical")
        given, _ = MAKERS_LEFT_OUT.get(told, (row["suggested"] if serious else "", ""))
        harmless = row["suggested"] == "info" and not given
        if (given and judged(line) != given) or (harmless and judged(line) != "info"):
            wrong[line] = (judged(line), row["suggested"])

    assert len(makers()) > 90
    assert wrong == {}
