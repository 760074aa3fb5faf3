"""Kernel logs as people paste them: every check's rules, one table, the gravest first."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.agent.cli.dmesg import Row, Triage, as_json, as_text, summary, triage
from nodetriage.agent.cli.saved_log import Entry, entries, lines_of
from nodetriage.agent.cli.style import Style
from nodetriage.checks.model import Severity
from nodetriage.checks.registry import ALL

DATA = Path(__file__).with_name("data")
XID = "NVRM: Xid (PCI:0000:3a:00): 79, pid=1582259, name=python3, GPU has fallen off the bus."
HUNG = "INFO: task python3:4711 blocked for more than 122 seconds."


def triaged(log: bytes | str) -> Triage:
    data = log.encode() if isinstance(log, str) else log
    return triage(entries(lines_of(io.BytesIO(data))), ALL)


def faults(log: bytes | str) -> list[tuple[str, str, int, int, int]]:
    return [(r.component, r.fault, r.line, r.last_line, r.count) for r in triaged(log).rows]


def texts(log: bytes | str) -> list[str]:
    return [entry.text for entry in entries(lines_of(io.BytesIO(log.encode() if isinstance(log, str) else log)))]


def test_a_real_log_of_a_gsp_timeout_is_one_fault_with_its_first_and_last_line() -> None:
    data = (DATA / "gsp-timeout.dmesg-t.log").read_bytes()
    of_xid = [number for number, line in enumerate(data.split(b"\n"), 1) if b"Xid" in line]

    (row, *_) = triaged(data).rows

    assert (row.component, row.fault, row.evidence["xid"]) == ("0000:9b:00.0", "gpu_gsp_timeout", 119)
    assert (row.line, row.last_line) == (of_xid[0], of_xid[-1])
    assert row.when.endswith("2025")


def test_a_real_log_of_a_job_s_own_error_is_no_more_than_information() -> None:
    rows = triaged((DATA / "graphics-exception.dmesg-iso.log").read_bytes()).rows

    assert {row.severity for row in rows} == {Severity.INFO}


def test_a_log_without_faults_says_how_much_was_looked_at() -> None:
    quiet = triaged((DATA / "quiet.kmsg.log").read_bytes())

    assert quiet.rows == ()
    assert summary(quiet).startswith(f"looked at {quiet.lines} lines from {quiet.first} to {quiet.last}")
    assert summary(quiet).endswith(": nothing found")
    assert summary(triaged("")) == "looked at 0 lines: nothing found"


def test_every_check_s_lines_are_found_and_the_gravest_comes_first() -> None:
    log = "\n".join(
        (
            f"[  100.5] {HUNG}",
            "[  101.5] EDAC MC1: 1 UE on mc#1csrow#2channel#3 (csrow:2 channel:3 page:0x7d1a2c)",
            "[  102.5] {1}[Hardware Error]: event severity: recoverable",
            "[  102.6] {1}[Hardware Error]:  Error 0, type: recoverable",
            "[  102.7] {1}[Hardware Error]:   section_type: PCIe error",
            "[  102.8] {1}[Hardware Error]:   device_id: 0000:17:00.0",
            f"[  103.5] {HUNG.replace('4711', '4712')}",
            "[  104.5] nvme nvme1: Disabling device after reset failure: -19",
        )
    )

    assert sorted(faults(log)) == [
        ("0000:17:00.0", "pcie_nonfatal", 5, 5, 1),
        ("kernel", "kernel_hung_task", 1, 7, 2),
        ("mc#1csrow#2channel#3", "mem_uncorrected", 2, 2, 1),
        ("nvme1", "disk_lost", 8, 8, 1),
    ]
    severities = [row.severity for row in triaged(log).rows]
    assert severities == sorted(severities, reverse=True)
    last = triaged(log).rows[-1]
    assert (last.when, last.last_when) == ("100.5", "103.5")


def test_a_second_boot_in_the_log_is_told_apart() -> None:
    log = f"[  900.5] {HUNG}\n[    0.000000] Linux version 6.8.0 (gcc)\n[  130.5] {HUNG}\n"
    found = triaged(log)

    assert [(row.boot, row.line) for row in found.rows] == [(1, 1), (2, 3)]
    assert ", 2 boots: 2 faults" in summary(found)
    assert triaged(f"[    0.000000] Linux version 6.8.0 (gcc)\n[  130.5] {HUNG}\n").boots == 1
    assert triaged(f"[  900.5] {HUNG}\n[  100.5] {HUNG}\n").boots == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_log_may_be_packed_and_have_two_bytes_a_character(encoding: str) -> None:
    log = f"first\n[    1.5] {XID}\n".encode(encoding)

    for data in (log, gzip.compress(log), gzip.compress(log[:20]) + gzip.compress(log[20:])):
        assert faults(data) == [("0000:3a:00.0", "gpu_off_bus", 2, 2, 1)]


def test_what_could_be_unpacked_of_a_damaged_file_counts() -> None:
    whole = gzip.compress(f"{XID}\n".encode() + bytes(range(256)) * 4000)

    assert faults(whole[:-200])[0][1] == "gpu_off_bus"


@pytest.mark.parametrize(
    ("line", "when"),
    [
        (XID, ""),
        (f"[155044.078590] {XID}", "155044.078590"),
        (f"[Sun Feb 23 16:24:18 2025] {XID}", "Sun Feb 23 16:24:18 2025"),
        (f"<3>[6085126.134786] {XID}", "6085126.134786"),
        (f"kern  :err   : 2025-01-21T04:41:44,283302+00:00 {XID}", "2025-01-21T04:41:44,283302+00:00"),
        (f"Apr  3 09:12:44 node01 kernel: [11272.551321] {XID}", "Apr  3 09:12:44"),
        (f"kwi 15 07:56:59 node01 kernel: {XID}", "kwi 15 07:56:59"),
        (f"2025-03-05T13:09:36.192+00:00 vm-1  !WARNING | kernel: {XID}", "2025-03-05T13:09:36.192+00:00"),
        (f"2025-03-05T13:09:36.192+00:00 vm-1     !INFO | kernel: {XID}", "2025-03-05T13:09:36.192+00:00"),
        (f"4,1227,437812449932,-,caller=T1946;{XID}", "437812.449932"),
        (f"  4,1227,437812449932,-;{XID}", "437812.449932"),
    ],
)
def test_any_prefix_will_do_and_its_moment_is_kept(line: str, when: str) -> None:
    found = triaged(f"first\n{line}\r\nlast")

    assert [(r.component, r.fault, r.line, r.when) for r in found.rows] == [("0000:3a:00.0", "gpu_off_bus", 2, when)]


def test_a_message_of_three_lines_is_one_record_raw_or_pasted() -> None:
    text = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands."
    )
    raw = "4,1,2,-;" + text.replace("\n", "\\x0a")

    assert texts(f"a\n{text}\n{XID}") == ["a", text, XID]
    assert texts(f"a\n{raw}\n{XID}") == ["a", text, XID]


@settings(max_examples=50)
@given(st.binary(max_size=400), st.sampled_from([b"\n", b"\x0c\n", b"\xe2\x80\xa8\n", b"\x85\n"]))
def test_garbage_neither_stops_it_nor_hides_the_next_line(garbage: bytes, end: bytes) -> None:
    found = list(entries([*(garbage + end).splitlines(keepends=True), XID.encode() + b"\n"]))

    assert found[-1].text == XID


def test_the_json_of_a_fault_has_all_that_the_check_knows() -> None:
    (found,) = map(as_json, triaged(f"[    1.5] {XID}").rows)

    assert set(found) == {
        "severity", "check", "component", "fault", "boot", "line", "last_line", "when", "last_when", "count", "advice",
        "evidence",
    }  # fmt: skip
    assert (found["severity"], found["fault"], found["check"]) == ("critical", "gpu_off_bus", "gpu_xid")
    assert (found["evidence"]["pid"], found["evidence"]["process"]) == (1582259, "python3")


def test_the_text_tells_what_where_when_how_often_and_what_to_do_once() -> None:
    said = {"text": "x"}
    row = Row(Severity.CRITICAL, "gpu_xid", "0000:3a:00.0", "gpu_off_bus", 1, 7, 9, "1.5", "3.5", 3, "Reboot it.", said)
    found = Triage((row, row), 9, 1, "0.1", "3.5")

    assert list(as_text(found)) == [
        "critical gpu_off_bus on 0000:3a:00.0, 3 lines, 7 to 9 (1.5 to 3.5)",
        "         x",
        "         -> Reboot it.",
        "critical gpu_off_bus on 0000:3a:00.0, 3 lines, 7 to 9 (1.5 to 3.5)",
        "         x",
        "looked at 9 lines from 0.1 to 3.5: 2 faults, the gravest critical",
    ]
    assert "\x1b[1;31m" in next(as_text(found, Style(colour=True)))


def test_a_storm_beyond_what_is_kept_is_counted_and_said() -> None:
    found = triage((Entry(n, HUNG) for n in range(1, 100_012)), ALL)

    assert (found.left_out, found.rows[0].count) == (11, 100_000)
    assert summary(found).endswith("; 11 further lines that rules fit were not judged")
