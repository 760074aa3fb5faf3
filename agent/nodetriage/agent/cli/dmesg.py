"""Offline triage of a kernel log that somebody pasted: dmesg, journal, syslog or raw /dev/kmsg, whole or in pieces."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nodetriage.agent.cli import report
from nodetriage.agent.cli.style import PLAIN, Style
from nodetriage.agent.machine import kmsg
from nodetriage.checks.model import Severity
from nodetriage.checks.readers import log_prefix, nvidia_log
from nodetriage.checks.rules.xid_rules import assess
from nodetriage.service.printable import printable

# str.splitlines breaks at these too; in a log they are bytes like others.
_NO_BREAKS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")

_PROBE_LINES = 3  # of the message that the driver prints where it meets a dead GPU while it loads


@dataclass(frozen=True, slots=True)
class Fault:
    """One record that tells of a fault. `line` counts from 1; None means that the record does not say."""

    line: int
    code: int | None
    kind: str  # xid, sxid, companion
    pci: str | None
    pid: int | str | None  # "unknown" is the driver's own word
    process: str | None
    severity: Severity
    fault: str
    advice: str


def find_faults(log: Iterable[bytes]) -> Iterator[Fault]:
    """The faults in the lines of a log, each as soon as it is read. Never raises: what is no fault is ignored."""
    for number, record in _records(log):
        found = _fault(number, record)
        if found is not None:
            yield found


def _records(log: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Number of the first line, and text, of each record: one a line, but the three lines of the driver's probe message
    together. A raw record of /dev/kmsg is a record whatever newlines it holds."""
    held: list[tuple[int, str]] = []
    for number, line in enumerate(log, 1):
        raw = kmsg.parse(line.lstrip())
        text = raw.text if raw is not None else _pasted(line)
        joins = raw is None and 0 < len(held) < _PROBE_LINES and text.startswith("NVRM:") and "Xid" not in text
        if held and not joins:
            yield _joined(held)
            held = []
        if joins or (raw is None and text.startswith("NVRM: The NVIDIA GPU")):
            held.append((number, text))
        else:
            yield number, text
    if held:
        yield _joined(held)


def _pasted(line: bytes) -> str:
    return log_prefix.message(line.rstrip(b"\n").decode("utf-8", "replace").translate(_NO_BREAKS))


def _joined(held: Sequence[tuple[int, str]]) -> tuple[int, str]:
    return held[0][0], "\n".join(text for _, text in held)


def _fault(number: int, record: str) -> Fault | None:
    line = nvidia_log.parse(record)
    worth = assess(line) if line is not None else None
    if line is None or worth is None:
        return None
    return Fault(
        line=number,
        code=line.code,
        kind=line.kind,
        pci=line.pci,
        pid=line.pid,
        process=line.process,
        severity=worth.severity,
        fault=worth.fault,
        advice=worth.advice,
    )


def as_json(found: Fault) -> dict[str, Any]:
    return {**dataclasses.asdict(found), "severity": found.severity.name.lower()}


def as_text(found: Fault, advise: bool, style: Style = PLAIN) -> Iterator[str]:
    """What, where, who and how grave on one line; under it, if wanted, what to do about it."""
    what = f"{found.kind.capitalize() if found.kind == 'xid' else 'SXid'} {found.code}" if found.code else "no code"
    who = f" by {printable(found.process or 'pid')} ({found.pid})" if isinstance(found.pid, int) else ""
    severity = report.painted(f"{found.severity.name.lower():<8}", found.severity, style)
    yield f"{found.line:>6}  {severity} {what} at {found.pci or 'an unnamed GPU'}{who}: {found.fault}"
    indent = " " * 8
    if advise:
        yield from style.fold(found.advice, indent)
