"""Kernel logs as people paste them."""

import io
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.cli.dmesg import Fault, as_json, as_text, find_faults
from nodetriage.agent.cli.style import Style
from nodetriage.checks.model import Severity

DATA = Path(__file__).with_name("data")
XID = "NVRM: Xid (PCI:0000:3a:00): 79, pid=1582259, name=python3, GPU has fallen off the bus."


def found_in(log: str) -> list[tuple[object, ...]]:
    return [astuple(f)[:7] for f in find_faults(io.BytesIO(log.encode()))]


def saved(name: str) -> io.BytesIO:
    return io.BytesIO((DATA / name).read_bytes())


def test_a_real_log_of_a_gsp_timeout_gives_each_of_its_lines() -> None:
    found = list(find_faults(saved("gsp-timeout.dmesg-t.log")))

    assert {f.code for f in found} == {119}
    assert {f.pci for f in found} == {"0000:9b:00"}
    assert [(f.process, f.pid) for f in found[-2:]] == [("cache_mgr_main", 1263500), ("gpud", 1240590)]
    lines = (DATA / "gsp-timeout.dmesg-t.log").read_text().split("\n")
    assert all("Xid" in lines[f.line - 1] for f in found)
    assert len(found) == sum("Xid" in line for line in lines)


def test_a_real_log_of_a_job_s_own_error_is_no_more_than_information() -> None:
    found = list(find_faults(saved("graphics-exception.dmesg-iso.log")))

    assert [(f.line, f.code, f.severity) for f in found] == [(n, 13, Severity.INFO) for n in (1, 2, 3, 4)]


def test_a_log_without_faults_gives_nothing() -> None:
    assert list(find_faults(saved("quiet.kmsg.log"))) == []
    assert list(find_faults([])) == []


@pytest.mark.parametrize(
    "line",
    [
        XID,
        f"[155044.078590] {XID}",
        f"[Sun Feb 23 16:24:18 2025] {XID}",
        f"<3>[6085126.134786] {XID}",
        f"kern  :err   : 2025-01-21T04:41:44,283302+00:00 {XID}",
        f"Apr  3 09:12:44 node01 kernel: [11272.551321] {XID}",
        f"kwi 15 07:56:59 node01 kernel: {XID}",
        f"4,1227,437812449932,c,caller=T1946;{XID}",
        f"  4,1227,437812449932,-;{XID}",
    ],
)
def test_any_prefix_will_do(line: str) -> None:
    expected = (2, 79, "xid", "0000:3a:00", 1582259, "python3", Severity.CRITICAL)

    assert found_in(f"first\n{line}\r\nlast") == [expected]


def test_a_message_of_three_lines_is_one_record_raw_or_pasted() -> None:
    text = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands."
    )
    raw = "4,1,2,-;" + text.replace("\n", "\\x0a")
    expected = (None, "companion", "0000:b3:00", None, None, Severity.CRITICAL)

    assert found_in(f"a\n{text}\n{XID}") == [(2, *expected), (5, 79, "xid", "0000:3a:00", 1582259, "python3", 4)]
    assert found_in(f"a\n{raw}\n{XID}") == [(2, *expected), (3, 79, "xid", "0000:3a:00", 1582259, "python3", 4)]


def test_a_fault_is_told_before_the_log_ends() -> None:
    def log() -> Iterator[bytes]:
        yield XID.encode() + b"\n"
        raise AssertionError("read on before the first fault was given")

    assert next(find_faults(log())).code == 79


@given(st.binary(max_size=400), st.sampled_from([b"\n", b"\x0c\n", b"\xe2\x80\xa8\n", b"\x85\n"]))
def test_garbage_neither_stops_it_nor_hides_the_next_line(garbage: bytes, end: bytes) -> None:
    found = list(find_faults(io.BytesIO(garbage + end + XID.encode() + b"\n")))

    assert found[-1].code == 79
    assert found[-1].line == (garbage + end).count(b"\n") + 1


def test_the_json_of_a_record_has_exactly_the_keys_of_the_contract() -> None:
    (found,) = map(as_json, find_faults([XID.encode()]))

    assert set(found) == {"line", "code", "kind", "pci", "pid", "process", "severity", "fault", "advice"}
    assert (found["severity"], found["fault"]) == ("critical", "gpu_off_bus")


def test_the_text_tells_who_and_where_and_what_to_do() -> None:
    found = Fault(7, 79, "xid", "0000:3a:00", 12, "python3", Severity.CRITICAL, "gpu_off_bus", "Reboot it.")

    assert list(as_text(found, advise=True)) == [
        "     7  critical Xid 79 at 0000:3a:00 by python3 (12): gpu_off_bus",
        "        Reboot it.",
    ]
    assert "\x1b[1;31m" in next(as_text(found, advise=False, style=Style(colour=True)))
