"""One line of the driver in each form in which people keep it: `nodetriage dmesg` finds the same fault in all."""

import gzip
import io
import json

import pytest

from nodetriage.agent.cli.dmesg import triage
from nodetriage.agent.cli.saved_log import entries, lines_of
from nodetriage.checks.registry import ALL

XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SINCE_BOOT = "863990.341012"
PLAIN = f"[{SINCE_BOOT}] {XID}"
JOURNAL = {"__REALTIME_TIMESTAMP": "1725010989341012", "PRIORITY": "3", "_TRANSPORT": "kernel", "MESSAGE": XID}
DOCKER = {"log": f"{PLAIN}\n", "stream": "stdout", "time": "2024-08-30T09:43:09Z"}
HTML = PLAIN.replace("'", "&#39;").replace("<", "&lt;").replace(">", "&gt;")
FORMATS = {
    "dmesg": (PLAIN, SINCE_BOOT),
    "dmesg -x": (f"kern  :err   : {PLAIN}", SINCE_BOOT),
    "dmesg -T -x": (f"kern  :err   : [Fri Aug 30 11:43:09 2024] {XID}", "Fri Aug 30 11:43:09 2024"),
    "dmesg -T of a German locale": (f"[Fr Aug 30 11:43:09 2024] {XID}", "Fr Aug 30 11:43:09 2024"),
    "dmesg -H": (f"[May19 19:57] {XID}", "May19 19:57"),
    "dmesg -H, a later line": (f"[  +0.000127] {XID}", "+0.000127"),
    "dmesg --time-format iso": (f"2024-08-30T11:43:09,341012+02:00 {XID}", "2024-08-30T11:43:09,341012+02:00"),
    "dmesg with colours": (f"\x1b[32m[{SINCE_BOOT}] \x1b[0m\x1b[31m{XID}\x1b[0m", SINCE_BOOT),
    "a kernel that names the caller": (f"[{SINCE_BOOT}] [ T1234] {XID}", SINCE_BOOT),
    "the driver's form before 2020": (PLAIN.replace("PCI:", ""), SINCE_BOOT),
    "journalctl": (f"Aug 30 11:43:09 node kernel: {XID}", "Aug 30 11:43:09"),
    "journalctl -o short-full": (f"Fri 2024-08-30 11:43:09 CEST node kernel: {XID}", "Fri 2024-08-30 11:43:09 CEST"),
    "journalctl -o short-iso": (f"2024-08-30T11:43:09+0200 node kernel: {XID}", "2024-08-30T11:43:09+0200"),
    "journalctl -o short-monotonic": (f"[{SINCE_BOOT}] node kernel: {XID}", SINCE_BOOT),
    "journalctl -o json": (json.dumps(JOURNAL), "1725010989341012"),
    "RFC 5424": (f"<3>1 2024-08-30T11:43:09.341012+02:00 node kernel - - - {XID}", "2024-08-30T11:43:09.341012+02:00"),
    "Docker": (json.dumps(DOCKER), "2024-08-30T09:43:09Z"),
    "Kubernetes": (f"2024-08-30T11:43:09.341012Z stderr F {XID}", "2024-08-30T11:43:09.341012Z"),
    "a log shipper": (f"2024-08-30T11:43:09Z node ERR kernel {XID}", "2024-08-30T11:43:09Z"),
    "grep": (f"/var/log/kern.log:1234:Aug 30 11:43:09 node kernel: {PLAIN}", "Aug 30 11:43:09"),
    "pdsh": (f"gpu17: {PLAIN}", SINCE_BOOT),
    "a quoted mail": (f"> {PLAIN}", SINCE_BOOT),
    "a page's source": (HTML, SINCE_BOOT),
    "a mail that wraps": (PLAIN.replace(", name", ",\nname"), SINCE_BOOT),
}  # fmt: skip


def found(log: bytes) -> list[tuple[str, str, str, str]]:
    rows = triage(entries(lines_of(io.BytesIO(log))), ALL).rows
    return [(row.component, row.fault, row.severity.name, row.when) for row in rows]


@pytest.mark.parametrize("name", FORMATS)
def test_a_line_is_read_in_the_form_of(name: str) -> None:
    text, when = FORMATS[name]

    for log in (text.encode(), f"{text}\r\n".encode(), gzip.compress(text.encode()), text.encode("utf-16")):
        assert found(log) == [("0000:9d:00.0", "gpu_off_bus", "CRITICAL", when)]


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_program_wrote_in_the_same_form_is_none_of_the_driver_s(name: str) -> None:
    """The twin: the words are there, behind those of somebody else."""
    text, _ = FORMATS[name]

    assert found(text.replace("NVRM: Xid", "my-job: saw NVRM: Xid").encode()) == []
