"""Deletes what is older than the history is kept, in slices: each is a short transaction between those of the service.

An event of a finding that is still open stays, and so does an action that is not done. Of the policy's inputs all stay
from the last snapshot before the limit on: a replay begins with one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, func, select, tuple_

from nodetriage.controller.settings.retention import RetentionSettings
from nodetriage.controller.store import schema

SLICE_ROWS = 2000
DAY_US = 86_400_000_000
_OVER = ("done", "cancelled", "shadow")


@dataclass(frozen=True, slots=True)
class Limits:
    """Unix microseconds before which rows are too old; None keeps them. `open_events` are cursors that stay."""

    history_us: int | None
    inputs_us: int | None
    upto: int  # the policy has taken the events up to this cursor
    open_events: Collection[int] = ()


def limits(settings: RetentionSettings, now_us: int, upto: int, open_events: Collection[int] = ()) -> Limits:
    def before(days: float) -> int | None:
        return now_us - round(days * DAY_US) if days else None

    return Limits(before(settings.keep_days), before(settings.keep_inputs_days), upto, open_events)


def delete_slice(connection: Connection, old: Limits, rows: int = SLICE_ROWS) -> dict[str, int]:
    """Deletes at most `rows` of each table; returns how many of each, all 0 where nothing is too old any more."""
    deleted = {}
    for table, condition in _conditions(connection, old).items():
        key = tuple_(*table.primary_key.columns)
        slice_ = select(*table.primary_key.columns).where(condition).order_by(*_order(table)).limit(rows)
        keys = [tuple(row) for row in connection.execute(slice_)]
        if keys:
            connection.execute(delete(table).where(key.in_(keys)))
        deleted[table.name] = len(keys)
    return deleted


def count(connection: Connection, old: Limits) -> dict[str, tuple[int, int]]:
    """By table: how many rows are too old, and how many there are."""
    too_old = _conditions(connection, old)
    return {
        table.name: (
            connection.scalar(_counted(table).where(too_old[table])) or 0 if table in too_old else 0,
            connection.scalar(_counted(table)) or 0,
        )
        for table in (schema.events, schema.actions, schema.job_hits, schema.inputs)
    }


def _counted(table: Table) -> Select[Any]:
    return select(func.count()).select_from(table)


def _order(table: Table) -> tuple[ColumnElement[Any], ...]:
    """In which an index has the rows: the oldest first where it can be."""
    return (schema.actions.c.decided_us,) if table is schema.actions else tuple(table.primary_key.columns)


def _conditions(connection: Connection, old: Limits) -> Mapping[Table, ColumnElement[bool]]:
    found: dict[Table, ColumnElement[bool]] = {}
    if old.history_us is not None:
        e, a = schema.events.c, schema.actions.c
        # By the cursor, which grows with the time of arrival: no index of that time is needed.
        found[schema.events] = (e.id < _first_kept(connection, old.history_us, old.upto)) & e.id.not_in(old.open_events)
        found[schema.actions] = (a.decided_us < old.history_us) & a.status.in_(_OVER)
        found[schema.job_hits] = schema.job_hits.c.at_us < old.history_us
    if old.inputs_us is not None:
        i = schema.inputs.c
        snapshot = select(func.max(i.id)).where(i.kind == "snapshot", i.at_us <= old.inputs_us)
        found[schema.inputs] = i.id < (connection.scalar(snapshot) or 0)
    return found


def _first_kept(connection: Connection, before_us: int, upto: int) -> int:
    """The first cursor that is to stay, by bisection: cursors and times of arrival grow together."""
    e = schema.events.c
    low, high = connection.execute(select(func.min(e.id), func.max(e.id))).one()
    if low is None:
        return 0
    high = min(high, upto) + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            select(e.id, e.received_us).where(e.id >= middle, e.id < high).order_by(e.id).limit(1)
        ).one_or_none()
        if row is None or row.received_us >= before_us:
            high = middle
        else:
            low = row.id + 1
    return int(low)
