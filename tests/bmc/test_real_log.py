"""The log of a simulated BMC with an entry of every standard event, through the real ipmitool and FreeIPMI."""

import csv
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_bmc import SimulatedBmc, missing

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_sel
from nodetriage.checks.readers import sel
from nodetriage.checks.rules.event_log import sel_rules
from nodetriage.checks.rules.event_log.sel_rules import Worth

# Offsets of the sensor-specific events (IPMI 2.0, table 42-3) by sensor type.
OFFSETS = {
    0x05: 7, 0x06: 6, 0x07: 13, 0x08: 7, 0x09: 8, 0x0C: 11, 0x0D: 9, 0x0F: 3, 0x10: 6, 0x11: 8, 0x12: 6, 0x13: 12,
    0x14: 5, 0x19: 2, 0x1B: 2, 0x1D: 8, 0x1E: 5, 0x1F: 11, 0x20: 6, 0x21: 10, 0x22: 13, 0x23: 9, 0x25: 3, 0x27: 2,
    0x28: 6, 0x29: 3, 0x2B: 8, 0x2C: 8,
}  # fmt: skip
CATALOGUE = Path(__file__).parents[1] / "checks/data/sel_events.tsv"
PANIC = "0xf0 " + " ".join(f"{byte:#x}" for byte in b"\x46Oops\n 9 | x |")


@pytest.fixture(scope="module")
def bmc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedBmc]:
    if lacking := missing():
        pytest.skip(lacking)
    simulated = SimulatedBmc(tmp_path_factory.mktemp("bmc") / "bmc")
    try:
        fill(simulated)
        yield simulated
    finally:
        simulated.stop()


def fill(bmc: SimulatedBmc) -> None:
    """An entry of every standard event, begun and ended, and the records that have no sensor."""
    commands = [
        f"raw 0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 {kind:#x} 0xa1 {ended | 0x6F:#x} {offset:#x} 0xff 0xff"
        for kind, offsets in OFFSETS.items()
        for offset in range(offsets)
        for ended in (0, 0x80)
    ]
    commands += [f"raw 0x0a 0x44 0 0 {PANIC}", "raw 0x0a 0x44 0 0 0xe0 1 2 3 4 5 6 7 8 9 0 0 0 0"]
    commands += ["raw 0x0a 0x44 0 0 0xc1 1 2 3 4 5 6 7 8 9 0 0 0 0"]
    script = "\n".join(commands)
    argv = [*bmc.argv, "exec", "/dev/stdin"]
    subprocess.run(argv, input=script, text=True, check=True, capture_output=True, timeout=300)


def in_catalogue() -> set[tuple[str, str, bool]]:
    with CATALOGUE.open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {(row["sensor_type"], row["ipmitool"], row["direction"] == "Asserted") for row in rows}


def judged(text: str) -> tuple[list[tuple[int, Worth]], int]:
    entries, strange = sel.log_entries(text)
    return [(entry.record, sel_rules.assess(entry)) for entry in entries], strange


def test_the_real_tools_print_every_standard_event_in_words_that_the_table_knows(bmc: SimulatedBmc) -> None:
    by_ipmitool, strange = judged(bmc.ipmitool("sel", "elist"))
    count = 2 * sum(OFFSETS.values())

    assert len(by_ipmitool) == count + 3
    assert strange <= 1  # the rest of the panic's text, behind its line break
    entries, _ = sel.log_entries(bmc.ipmitool("sel", "elist"))
    printed = {(e.sensor.removesuffix(" #0xa1"), e.event, e.asserted) for e in entries if e.sensor.endswith("#0xa1")}
    assert len(printed) > 300
    assert printed - in_catalogue() == set()
    unknown = [record for record, w in by_ipmitool if w.fault == sel_rules.UNKNOWN]
    assert len(unknown) <= 8  # events without words in ipmitool, and the records of makers


def test_freeipmi_and_ipmitool_agree_on_the_severity_of_every_entry(bmc: SimulatedBmc, tmp_path: Path) -> None:
    if shutil.which("ipmi-sel") is None:
        pytest.skip("freeipmi-tools not installed")
    asked = ["ipmi-sel", *bmc.freeipmi, "-v", "--output-event-state", "--no-header-output", "--ignore-sdr-cache"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120).stdout
    theirs, ours = dict(judged(text)[0]), dict(judged(bmc.ipmitool("sel", "elist"))[0])

    assert theirs.keys() == ours.keys()
    differ = {
        record: (ours[record], theirs[record])
        for record in ours
        if ours[record].severity != theirs[record].severity and ours[record].fault != sel_rules.UNKNOWN
    }
    # The firmware's hang and progress are one word in ipmitool; the text of the panic is bytes in FreeIPMI.
    assert {w[0].fault for w in differ.values()} <= {"", "bmc_host_stopped", "bmc_board"}, differ
    assert len(differ) <= 3, differ


def test_without_ipmitool_the_check_reads_the_log_by_freeipmi(bmc: SimulatedBmc) -> None:
    if shutil.which("ipmi-sel") is None:
        pytest.skip("freeipmi-tools not installed")
    by_ipmitool, by_freeipmi = Host("/"), Host("/")
    by_ipmitool.call_programs({"ipmitool": bmc.argv})
    programs = {name: (name, *bmc.freeipmi) for name in ("ipmi-sel", "bmc-device")}
    by_freeipmi.call_programs({"ipmitool": ("/nowhere/ipmitool",), **programs})

    ours, theirs = bmc_sel.read(by_ipmitool), bmc_sel.read(by_freeipmi)

    assert [e.record for e in theirs.entries] == [e.record for e in ours.entries]
    assert [e.at_s for e in theirs.entries] == [e.at_s for e in ours.entries]
    assert abs(theirs.now_s - ours.now_s) < 60
    assert abs(theirs.used_pct - ours.used_pct) <= 1
