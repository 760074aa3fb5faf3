"""The controller's rows as tables (service/table.py prints them)."""

import datetime
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli import format
from nodetriage.controller.store.fleet import CheckView
from nodetriage.controller.store.history import StoredEvent
from nodetriage.controller.store.node_views import NodeView, OpenFinding
from nodetriage.service import table
from nodetriage.service.table import Line, Table

if TYPE_CHECKING:
    from nodetriage.controller.auth.pki import Found


def show(*parts: Table | Line | str) -> None:
    table.write(sys.stdout, *parts)


def node_table(views: Sequence[NodeView], now_us: int) -> Table:
    rows = []
    for view in views:
        worst = format.severity(view.findings[0].severity) if view.findings else "-"
        faults = ", ".join(_counted(f.fault for f in view.findings)) or "-"
        rows.append((view.node, _state(view), _agent(view, now_us), view.slurm or "-", worst, faults))
    return Table(("node", "state", "agent", "slurm", "worst", "findings"), rows)


def finding_table(findings: Iterable[OpenFinding]) -> Table:
    rows = []
    for found in findings:
        values = (found.fault, found.component, format.clock(found.raised_us), format.words(found.evidence))
        rows.append((format.severity(found.severity), *values))
    return Table(("severity", "fault", "component", "since", "evidence"), rows)


def check_table(checks: Iterable[CheckView], now_us: int) -> Table:
    rows = []
    for check in checks:
        ran = "-" if check.ran_us is None else f"{format.age((now_us - check.ran_us) / 1_000_000)} ago"
        rows.append((check.check, format.outcome(check.outcome) or "-", ran, format.clock(check.since_us) or "-"))
    return Table(("check", "outcome", "ran", "since (UTC)"), rows)


def event_table(events: Iterable[StoredEvent]) -> Table:
    rows = []
    for stored in events:
        event = stored.event
        what = " ".join(filter(None, (event.fault or event.check, event.component, _detail(stored))))
        severity = format.severity(event.severity) or "-"
        rows.append((format.clock(event.at_unix_us), stored.node, format.kind(event.kind), severity, what))
    return Table(("time (UTC)", "node", "kind", "severity", "what"), rows)


def certificate_table(found: Iterable["Found"], now: datetime.datetime) -> Table:
    rows = []
    for one in found:
        holder = one.holder
        days = (holder.ends - now) / datetime.timedelta(days=1)
        ends = f"{holder.ends:%Y-%m-%d} ({f'in {days:.0f} days' if days > 0 else 'ended'})"
        rows.append((holder.role.value, holder.name, ", ".join(holder.names) or "-", ends, holder.serial))
    return Table(("for", "name", "good for", "ends (UTC)", "serial"), rows)


def event_line(stored: StoredEvent) -> Line:
    """One event as one line, for following."""
    event = stored.event
    words = (event.fault or event.check, event.component, _detail(stored))
    start = (format.clock(event.at_unix_us), stored.node, format.kind(event.kind), format.severity(event.severity))
    return Line(" ".join(filter(None, (*start, *words))))


def action_table(records: Iterable[Mapping[str, Any]]) -> Table:
    rows = []
    for record in records:
        job = f" job {record['job']}" if record["job"] else ""
        outcome = f" ({record['outcome']})" if record["outcome"] not in ("", "done") else ""
        incident = f"[{record['incident']}]" if record["incident"] else ""
        why = " ".join(filter(None, (record["fault"], record["component"], incident, record["detail"])))
        kind = f"shadow {record['text']}" if record["kind"] == "shadow" else record["kind"]
        action = (f"{kind}{job}", f"{record['status']}{outcome}")
        rows.append((format.clock(record["decided_us"]), record["node"], *action, why))
    return Table(("decided (UTC)", "node", "action", "status", "why"), rows)


def transition_table(records: Iterable[Mapping[str, Any]]) -> Table:
    rows = [
        (format.clock(r["at_us"]), r["before"] or "-", r["after"], r["cause"], r["actor"]) for r in records
    ]  # fmt: skip
    return Table(("time (UTC)", "from", "to", "cause", "by"), rows)


def record_table(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Table:
    """The named values of each record."""
    return Table(columns, [tuple(str(record[column]) for column in columns) for record in records])


def _state(view: NodeView) -> str:
    words = [view.state or "-"]
    if view.state != view.policy_state and view.policy_state:
        words.append(f"(was {view.policy_state})")
    if view.maintenance:
        words.append(f"(maintenance, {view.maintenance})")
    if view.drain:
        words.append("(theirs)" if view.theirs else f"(drain {view.drain})")
    if view.queued_reason:
        words.append(f"queued: {view.queued_reason}")
    return " ".join(words)


def _agent(view: NodeView, now_us: int) -> str:
    """As "heard 3s ago", or "refused: agent 9.0 does not match"."""
    why = f": {view.known.why}" if view.known is not None and view.known.why else ""
    seen = f" {format.age((now_us - view.row.last_seen_us) / 1_000_000)} ago" if view.row is not None else ""
    return f"{view.presence}{seen}{why}"


def _detail(stored: StoredEvent) -> str:
    if not stored.event.fault and stored.event.check:
        return format.outcome(stored.event.outcome)
    return format.evidence_line(stored.event)


def _counted(faults: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault] = counts.get(fault, 0) + 1
    return [fault if count == 1 else f"{fault} x{count}" for fault, count in counts.items()]
