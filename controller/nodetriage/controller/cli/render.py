"""Tables for a terminal of 80 columns or more; long values fold, nothing is cut off."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from nodetriage.controller.auth.pki import Found
from nodetriage.controller.cli import format
from nodetriage.controller.store.fleet import CheckView, NodeView
from nodetriage.controller.store.history import StoredEvent

_COLOURS = {"critical": "bold red", "major": "red", "warning": "yellow", "info": "default"}


def show(*parts: RenderableType) -> None:
    Console(highlight=False, soft_wrap=False).print(Group(*parts))


def node_table(views: Sequence[NodeView], now_us: int) -> Table:
    table = _table("node", "state", "seen", "worst", "findings")
    for view in views:
        worst = format.severity(view.findings[0].event.severity) if view.findings else "-"
        faults = ", ".join(_counted(f.event.fault for f in view.findings)) or "-"
        seen = format.age((now_us - view.row.last_seen_us) / 1_000_000)
        table.add_row(escape(view.row.node), _state(view), f"{seen} ago", _severity(worst), escape(faults))
    return table


def finding_table(findings: Iterable[StoredEvent]) -> Table:
    table = _table("severity", "fault", "component", "since", "evidence")
    for stored in findings:
        event = stored.event
        values = (event.fault, event.component, format.clock(event.at_unix_us), format.evidence_line(event))
        table.add_row(_severity(format.severity(event.severity)), *map(escape, values))
    return table


def check_table(checks: Iterable[CheckView], now_us: int) -> Table:
    table = _table("check", "outcome", "looked", "since (UTC)")
    for check in checks:
        looked = "-" if check.ran_us is None else f"{format.age((now_us - check.ran_us) / 1_000_000)} ago"
        since = format.clock(check.since_us) or "-"
        table.add_row(escape(check.check), format.outcome(check.outcome) or "-", looked, since)
    return table


def event_table(events: Iterable[StoredEvent]) -> Table:
    table = _table("time (UTC)", "node", "kind", "severity", "what")
    for stored in events:
        event = stored.event
        word = format.severity(event.severity)
        what = " ".join(filter(None, (event.fault or event.check, event.component, _detail(stored))))
        kind = format.kind(event.kind)
        table.add_row(format.clock(event.at_unix_us), escape(stored.node), kind, _severity(word), escape(what))
    return table


def certificate_table(found: Iterable[Found], now: datetime.datetime) -> Table:
    table = _table("for", "name", "good for", "ends (UTC)", "serial")
    for one in found:
        holder = one.holder
        days = (holder.ends - now) / datetime.timedelta(days=1)
        ends = f"{holder.ends:%Y-%m-%d} ({f'in {days:.0f} days' if days > 0 else 'ended'})"
        row = (holder.role.value, holder.name, ", ".join(holder.names) or "-", ends, holder.serial)
        table.add_row(*map(escape, row))
    return table


def event_line(stored: StoredEvent) -> str:
    """One event as one line, for following."""
    event = stored.event
    words = (event.fault or event.check, event.component, _detail(stored))
    start = (format.clock(event.at_unix_us), stored.node, format.kind(event.kind), format.severity(event.severity))
    return " ".join(filter(None, (*start, *words)))


def action_table(records: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("decided (UTC)", "node", "action", "status", "why")
    for record in records:
        job = f" job {record['job']}" if record["job"] else ""
        outcome = f" ({record['outcome']})" if record["outcome"] not in ("", "done") else ""
        why = " ".join(
            filter(None, (record["fault"], record["component"], f"[{record['incident']}]", record["detail"]))
        )
        values = (record["node"], f"{record['kind']}{job}", f"{record['status']}{outcome}", why)
        table.add_row(format.clock(record["decided_us"]), *map(escape, values))
    return table


def transition_table(records: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("time (UTC)", "from", "to", "cause", "by")
    for record in records:
        values = (record["before"] or "-", record["after"], record["cause"], record["actor"])
        table.add_row(format.clock(record["at_us"]), *map(escape, values))
    return table


def plain_table(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Table:
    """The named values of each record, severities in colour."""
    table = _table(*columns)
    for record in records:
        table.add_row(*(_severity(record[c]) if c == "severity" else escape(str(record[c])) for c in columns))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _state(view: NodeView) -> str:
    words = [view.state or "-"]
    if view.drain:
        words.append("(theirs)" if view.theirs else f"(drain {view.drain})")
    if view.held_why:
        words.append(f"held: {view.held_why}")
    return escape(" ".join(words))


def _severity(word: str) -> str:
    return f"[{_COLOURS[word]}]{word}[/]" if word in _COLOURS else escape(word or "-")


def _detail(stored: StoredEvent) -> str:
    if not stored.event.fault and stored.event.check:
        return format.outcome(stored.event.outcome)
    return format.evidence_line(stored.event)


def _counted(faults: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault] = counts.get(fault, 0) + 1
    return [fault if count == 1 else f"{fault} x{count}" for fault, count in counts.items()]
