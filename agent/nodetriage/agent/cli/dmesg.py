"""Offline triage of a kernel log: the rules of every check on each boot in it, as one table, the gravest first."""

import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodetriage.agent.cli import report
from nodetriage.agent.cli.saved_log import Entry
from nodetriage.agent.cli.style import PLAIN, Style
from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.gpu import gpu_xid
from nodetriage.checks.model import Check, Finding, KernelRecord, Scalar, Severity
from nodetriage.checks.model.faults import faults
from nodetriage.checks.model.kernel_rules import matcher
from nodetriage.checks.readers import nvidia_log
from nodetriage.service.printable import printable

AnyCheck = Check[Any, Any]
_KEPT = 100_000  # lines that some rule fits, a boot; what comes behind them is only counted
_TEXT_CHARS = 120  # of a line that find it again in the log


@dataclass(frozen=True, slots=True)
class Row:
    """One fault of one part in one boot: `count` lines (or what the check counts) from `line` to `last_line`."""

    severity: Severity
    check: str
    component: str
    fault: str
    boot: int
    line: int
    last_line: int
    when: str
    last_when: str
    count: int
    advice: str
    evidence: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Triage:
    """All that was found, and in how much."""

    rows: tuple[Row, ...]
    lines: int
    boots: int
    first: str  # the first and the last moment, as the log prints them
    last: str
    left_out: int = 0  # lines that a rule fits, beyond what is kept


def triage(log: Iterable[Entry], checks: Sequence[AnyCheck]) -> Triage:
    """Runs the rules of the checks that judge kernel lines. A line that names a device counts, whatever this machine
    has."""
    readers = tuple(check for check in checks if check.kernel_pattern is not None)
    kept: dict[int, list[Entry]] = {}
    lines, boots, left_out, first, last = 0, 0, 0, "", ""
    for entry in log:
        lines, boots = max(lines, entry.line + entry.text.count("\n")), entry.boot
        first, last = first or entry.when, entry.when or last
        if any(matcher(check.kernel_pattern).match(entry.text) for check in readers if check.kernel_pattern):
            of_boot = kept.setdefault(entry.boot, [])
            if len(of_boot) < _KEPT:
                of_boot.append(entry)
            else:
                left_out += 1
    with tempfile.TemporaryDirectory() as empty:  # no machine stands behind a log
        host = Host(empty)
        rows = [row for found in kept.values() for check in readers for row in _rows(host, check, found)]
    return Triage(tuple(sorted(rows, key=lambda r: (-r.severity, r.line))), lines, boots, first, last, left_out)


def _rows(host: Host, check: AnyCheck, found: Sequence[Entry]) -> Iterator[Row]:
    """The check's findings in one boot. A record's stamp is its place in the log, so that its line is known again."""
    policy, stamps = check.policy, {entry.line: entry.line * 1_000_000 for entry in found}
    if check.name == gpu_xid.CHECK.name:
        policy = dataclasses.replace(policy, any_device=True)
        if all(entry.at_s is not None for entry in found):  # time separates its bursts
            stamps = {entry.line: round((entry.at_s or 0) * 1e6) for entry in found}
        else:
            stamps = {entry.line: entry.line for entry in found}
    records = tuple(KernelRecord(entry.line, stamps[entry.line], 3, entry.text) for entry in found)
    lines = matcher(check.kernel_pattern or "")
    mine = tuple(record for record in records if lines.match(record.text))
    if not mine:
        return
    by_line = {entry.line: entry for entry in found}
    for finding in run(check, host.for_check(check, mine), policy, None).findings:
        first, last = _span(finding, mine, check.name == gpu_xid.CHECK.name)
        yield _row(check.name, finding, by_line[first], by_line[last])


def _span(finding: Finding, records: Sequence[KernelRecord], is_nvidia: bool) -> tuple[int, int]:
    """The numbers of the first and the last line that the finding is about."""
    if is_nvidia:
        code = finding.evidence.get("xid", finding.evidence.get("sxid"))
        said = ((r.seq, nvidia_log.parse(r.text)) for r in records)
        same = [seq for seq, x in said if x and x.component == finding.component and code in (None, x.code)]
        return (same[0], same[-1]) if same else (records[0].seq, records[-1].seq)
    text = str(finding.evidence.get("text", ""))[:_TEXT_CHARS]
    first = next((r.seq for r in records if r.text.startswith(text)), records[0].seq)
    last_s = finding.evidence.get("last_at_boot_s")
    known = {r.seq for r in records}
    last = int(last_s) if isinstance(last_s, int | float) and int(last_s) in known else first
    return min(first, last), max(first, last)


def _row(check: str, finding: Finding, first: Entry, last: Entry) -> Row:
    placed = ("at_boot_s", "last_at_boot_s", "lines", "count")
    evidence = {name: value for name, value in finding.evidence.items() if name not in placed}
    count = finding.evidence.get("count", finding.evidence.get("lines", 1))
    known = faults().get(finding.fault)
    return Row(
        finding.severity, check, finding.component, finding.fault, first.boot, first.line, last.line, first.when,
        last.when, count if isinstance(count, int) else 1, known.advice if known else "", evidence,
    )  # fmt: skip


def as_json(row: Row) -> dict[str, Any]:
    """All that is known of a row; the evidence is the check's."""
    named = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    return {**named, "severity": row.severity.name.lower(), "evidence": dict(row.evidence)}


def as_text(found: Triage, style: Style = PLAIN) -> Iterator[str]:
    """The table: what, on which part, how often and when; the line itself; what to do, once. Then the summary."""
    advised = set()
    for row in found.rows:
        severity = report.painted(f"{row.severity.name.lower():<8}", row.severity, style)
        yield f"{severity} {row.fault} on {printable(row.component)}, {_when(row, found.boots)}"
        if text := row.evidence.get("text"):
            yield f"         {printable(str(text).partition(chr(10))[0])}"
        if row.advice not in advised and row.severity > Severity.INFO:
            yield from style.fold(row.advice, "         -> ")
        advised.add(row.advice)
    yield summary(found)


def _when(row: Row, boots: int) -> str:
    boot = f", boot {row.boot}" if boots > 1 else ""
    if row.line == row.last_line:
        moment = f" ({row.when})" if row.when else ""
        return f"line {row.line}{moment}{boot}" + (f", {row.count} times" if row.count > 1 else "")
    moments = f" ({row.when} to {row.last_when})" if row.when else ""
    return f"{row.count} lines, {row.line} to {row.last_line}{moments}{boot}"


def summary(found: Triage) -> str:
    """One line: how much was looked at, and what came of it."""
    span = f" from {found.first} to {found.last}" if found.first else ""
    boots = f", {found.boots} boots" if found.boots > 1 else ""
    left_out = f"; {found.left_out} further lines that rules fit were not judged" if found.left_out else ""
    said = "nothing found"
    if count := len(found.rows):
        said = f"{count} fault{'s' if count > 1 else ''}, the gravest {found.rows[0].severity.name.lower()}"
    return f"looked at {found.lines} line{'' if found.lines == 1 else 's'}{span}{boots}: {said}{left_out}"
