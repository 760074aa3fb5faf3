"""The queue of recorded actions that are not done yet. Functions over a connection."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, or_, select, update

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.state import Action, ActionDone, ActionKind, ActionOutcome
from nodetriage.controller.store import schema
from nodetriage.controller.store.job_hits import keep_jobs
from nodetriage.controller.store.state_store import to_us

LONGEST_WAIT_US = 600_000_000  # no try is put off for longer


@dataclass(frozen=True, slots=True)
class Intent:
    """An action that is not done yet. `in_doubt`: it was begun, and its end is unknown."""

    action: Action
    attempts: int
    in_doubt: bool


def due(connection: Connection, now: datetime, limit: int = 100) -> list[Intent]:
    """The actions that are due: drains first, then by severity, then in the order of their decisions."""
    a = schema.actions.c
    # A try that is further ahead than any wait was set before the clock stepped back.
    is_time = or_(a.next_try_us <= to_us(now), a.next_try_us > to_us(now) + LONGEST_WAIT_US)
    query = select(schema.actions).where(a.status.in_(("pending", "started")), is_time)
    rows = sorted(
        connection.execute(query), key=lambda r: (r.kind != ActionKind.DRAIN, -r.severity, r.decided_us, r.id)
    )
    return [Intent(_action(row), row.attempts, row.status == "started") for row in rows[:limit]]


def start(connection: Connection, action: Action, now: datetime) -> None:
    """Records, before a try, that it begins."""
    a = schema.actions.c
    values = {"status": "started", "attempts": a.attempts + 1, "started_us": to_us(now)}
    connection.execute(update(schema.actions).where(a.id == action.id).values(values))


def put_off(connection: Connection, action: Action, why: str, next_try: datetime) -> None:
    """Records that its time has not come; that counts as no try."""
    values = {"detail": why[:500], "next_try_us": to_us(next_try)}
    connection.execute(update(schema.actions).where(schema.actions.c.id == action.id).values(values))


def retry(connection: Connection, action: Action, why: str, next_try: datetime) -> None:
    """Records that a try failed, and when the next is due."""
    values = {"status": "pending", "detail": why[:500], "next_try_us": to_us(next_try)}
    connection.execute(update(schema.actions).where(schema.actions.c.id == action.id).values(values))


def retry_now(connection: Connection, now: datetime) -> None:
    """Makes failed actions due at once."""
    a = schema.actions.c
    waits = (a.status == "pending", a.attempts > 0, a.next_try_us > to_us(now))
    connection.execute(update(schema.actions).where(*waits).values(next_try_us=to_us(now)))


def finish(connection: Connection, done: ActionDone, now: datetime) -> None:
    """Records its end. Call it in the transaction of the step that ActionDone leads to."""
    status = "cancelled" if done.outcome is ActionOutcome.CANCELLED else "done"
    values = {"status": status, "outcome": done.outcome, "detail": done.text[:500], "finished_us": to_us(now)}
    connection.execute(update(schema.actions).where(schema.actions.c.id == done.action.id).values(values))
    keep_jobs(connection, done.action.incident, done.action.node, done.jobs, now)


def _action(row: Any) -> Action:
    values = {name: getattr(row, name) for name in Action.__slots__}
    values |= {"kind": ActionKind(row.kind), "severity": Severity(row.severity), "hold": bool(row.hold)}
    return Action(**values)
