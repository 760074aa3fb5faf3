"""The fleet as it is now, from the store: queries for the operator's verbs. Frozen values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from nodetriage.controller.store.history import NodeRow, StoredEvent
from nodetriage.controller.store.schema import actions, events, transitions
from nodetriage.v1 import health_pb2

HOOKS = ("prolog", "epilog")  # as whose outcome an agent reports what its hooks did
MOST_JOBS = 1000
NEVER_RAN = 0xFFFFFFFF  # CheckState.age_ms


@dataclass(frozen=True, slots=True)
class CheckView:
    """One check of a node, as last reported. `ran_us` is None where it never ran or no heartbeat names it."""

    check: str
    outcome: int  # nodetriage.v1.Outcome
    ran_us: int | None
    since_us: int | None  # when the outcome began; None where no event reports it


def check_views(row: NodeRow, outcomes: Sequence[StoredEvent]) -> list[CheckView]:
    """All checks of a node's present boot, by name: from its last heartbeat, and the events after its last change."""
    beat = health_pb2.Heartbeat.FromString(row.heartbeat or b"")
    views = {o.event.check: CheckView(o.event.check, o.event.outcome, None, o.event.at_unix_us) for o in outcomes}
    if beat.boot_id == row.boot_id:
        for reported in beat.checks:
            ran_us = None if reported.age_ms == NEVER_RAN else (row.heartbeat_us or 0) - reported.age_ms * 1000
            known = views.get(reported.check)
            since_us = known.since_us if known and known.outcome == reported.outcome else None
            views[reported.check] = CheckView(reported.check, reported.outcome, ran_us, since_us)
    return [views[name] for name in sorted(views)]


def newest_actions(connection: Connection, node: str, only_open: bool, limit: int) -> list[dict[str, Any]]:
    """The last `limit` decisions, oldest of them first; of one node unless `node` is "". Columns of the table."""
    query = select(actions).order_by(actions.c.decided_us.desc(), actions.c.id.desc()).limit(limit)
    if node:
        query = query.where(actions.c.node == node)
    if only_open:
        query = query.where(actions.c.status.in_(("pending", "started")))
    return [dict(row) for row in reversed(connection.execute(query).mappings().all())]


def newest_transitions(connection: Connection, node: str, limit: int) -> list[dict[str, Any]]:
    """The last `limit` changes of a node's state, oldest of them first. Columns of the table."""
    query = select(transitions).where(transitions.c.node == node).order_by(transitions.c.id.desc()).limit(limit)
    return [dict(row) for row in reversed(connection.execute(query).mappings().all())]


def shadow_actions(connection: Connection, since_us: int) -> list[dict[str, Any]]:
    """What the policy only recorded, by action, fault and severity: how often, on how many nodes, when last."""
    a = actions.c
    grouped = (a.text, a.fault, a.severity)
    query = (
        select(*grouped, func.count(), func.count(a.node.distinct()), func.max(a.decided_us))
        .where(a.kind == "shadow", a.decided_us >= since_us)
        .group_by(*grouped)
        .order_by(func.count().desc(), *grouped)
    )
    names = ("action", "fault", "severity", "times", "nodes", "last_us")
    return [dict(zip(names, row, strict=True)) for row in connection.execute(query)]


def jobs_not_refused(connection: Connection, since_us: int, limit: int = MOST_JOBS) -> list[dict[str, Any]]:
    """The jobs that a hook would have refused if it did not only observe, the newest `limit` of them, oldest first."""
    e = events.c
    query = (
        select(e.node, e.at_us, e.check_name, e.fault, e.component, e.message)
        .where(e.at_us >= since_us, e.check_name.in_(HOOKS), e.fault != "")
        .where(e.kind == health_pb2.EVENT_KIND_OUTCOME)
        .order_by(e.id.desc())
    )
    found: list[dict[str, Any]] = []
    for row in connection.execution_options(stream_results=True, max_row_buffer=1000).execute(query):
        evidence = health_pb2.Event.FromString(row.message).evidence
        if evidence["would_refuse"].flag:
            names = (row.at_us, row.node, row.check_name, row.fault, row.component, evidence["job_id"].text)
            found.append(dict(zip(("at_us", "node", "hook", "fault", "component", "job"), names, strict=True)))
        if len(found) >= limit:
            break
    return found[::-1]
