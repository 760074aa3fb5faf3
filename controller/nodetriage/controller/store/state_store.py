"""The policy's state and its actions, in the database. One `save` is one transaction: all of a step or none.

Functions over a connection; who opens and commits it is the caller's (`Store.write`, `Store.read`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite

from nodetriage.controller.policy import unit_of_work
from nodetriage.controller.policy.agents.epoch import Epoch
from nodetriage.controller.policy.fleet_state import (
    AdmittedDrain,
    BreakerFacts,
    FleetIncident,
    HookFacts,
    PauseFact,
    ReservationFact,
)
from nodetriage.controller.policy.notices import Notice
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    FleetState,
    JobFacts,
    NodeFacts,
    NodeState,
    Step,
    Transition,
)
from nodetriage.controller.store import schema

NOTICE = "notify"  # the kind of a row of `actions` that is a notice
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Rest:
    """The part of FleetState that belongs to no node or job."""

    incidents: int
    admitted: tuple[AdmittedDrain, ...]
    sizes: Mapping[str, int]
    breaker: BreakerFacts = field(default_factory=BreakerFacts)
    pause: PauseFact | None = None
    fleet_incidents: tuple[FleetIncident, ...] = ()
    incidents_ended: Mapping[str, datetime] = field(default_factory=dict)
    reservations: tuple[ReservationFact, ...] = ()
    versions: Mapping[str, datetime] = field(default_factory=dict)
    epoch: Epoch = field(default_factory=Epoch)


def to_us(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def from_us(at_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=at_us)


def load(connection: Connection) -> FleetState:
    """The state after the last saved step. Raises msgspec.DecodeError where the rows are not valid."""
    row = connection.execute(select(schema.reconciler)).one_or_none()
    if row is None:
        return FleetState()
    rest = msgspec.json.decode(row.document, type=_Rest)
    documents = connection.execute(select(schema.node_states.c.document)).scalars()
    nodes = {n.node: n for n in (msgspec.json.decode(d, type=NodeFacts) for d in documents)}
    jobs = connection.execute(select(schema.job_states.c.document)).scalars()
    return FleetState(
        cursor=row.cursor,
        incidents=rest.incidents,
        nodes=nodes,
        jobs={j.job: j for j in (msgspec.json.decode(d, type=JobFacts) for d in jobs)},
        admitted=rest.admitted,
        sizes=rest.sizes,
        breaker=rest.breaker,
        pause=rest.pause,
        fleet_incidents=rest.fleet_incidents,
        incidents_ended=rest.incidents_ended,
        reservations=rest.reservations,
        versions=rest.versions,
        hooks=_hooks(connection),
        epoch=rest.epoch,
        showing=unit_of_work.showing(nodes.values()),
    )


def save(
    connection: Connection, before: FleetState, step: Step, now: datetime, changed: Iterable[str] | None = None
) -> None:
    """Writes what a step changed: state and cursor, transitions, incidents, actions.

    Only nodes of `changed` did; None: any may have.
    """
    after = step.state
    nodes = _changed(before.nodes, after.nodes, changed)
    _upsert_all(connection, schema.node_states, [_node_row(node) for node in nodes])
    for node in nodes:
        _save_incident(connection, before.nodes.get(node.node), node, now)
        _save_maintenance(connection, before.nodes.get(node.node), node, now)
    if after.jobs is not before.jobs:
        _save_jobs(connection, before.jobs, after.jobs)
    if step.transitions:
        connection.execute(schema.transitions.insert(), [_transition_row(t) for t in step.transitions])
    for row in (*(_action_row(a, now) for a in step.actions), *(_notice_row(n, now) for n in step.notices)):
        statement = insert_into(connection, schema.actions).values(row)
        connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
    if after.fleet_incidents is not before.fleet_incidents:
        _save_fleet_incidents(connection, before, after, now)
    if after.hooks is not before.hooks:
        _save_hooks(connection, before.hooks, after.hooks)
    _save_rest(connection, before, after)


def _changed(
    before: Mapping[str, NodeFacts], after: Mapping[str, NodeFacts], names: Iterable[str] | None
) -> list[NodeFacts]:
    if after is before:
        return []
    found = (after[name] for name in sorted(after if names is None else names) if name in after)
    return [node for node in found if before.get(node.node) is not node]


def _save_jobs(connection: Connection, before: Mapping[str, JobFacts], after: Mapping[str, JobFacts]) -> None:
    new = [{"job": n, "document": msgspec.json.encode(job)} for n, job in after.items() if before.get(n) is not job]
    _upsert_all(connection, schema.job_states, new)
    for name in before:
        if name not in after:
            connection.execute(schema.job_states.delete().where(schema.job_states.c.job == name))


def _save_rest(connection: Connection, before: FleetState, after: FleetState) -> None:
    """The cursor at each step, the document only where it changed: it grows with the fleet."""
    names = [f.name for f in fields(_Rest)]
    if any(getattr(before, name) is not getattr(after, name) for name in names):
        rest = _Rest(**{name: getattr(after, name) for name in names})
        upsert(connection, schema.reconciler, {"id": 1, "cursor": after.cursor, "document": msgspec.json.encode(rest)})
        return
    table = schema.reconciler
    if not connection.execute(table.update().values(cursor=after.cursor)).rowcount:
        document = msgspec.json.encode(_Rest(**{name: getattr(after, name) for name in names}))
        connection.execute(table.insert().values(id=1, cursor=after.cursor, document=document))


def _hooks(connection: Connection) -> dict[str, HookFacts]:
    rows = connection.execute(select(schema.hook_states))
    return {row.node: msgspec.json.decode(row.document, type=HookFacts) for row in rows}


def _save_hooks(connection: Connection, before: Mapping[str, HookFacts], after: Mapping[str, HookFacts]) -> None:
    table = schema.hook_states
    for name, facts in after.items():
        if before.get(name) is not facts:
            upsert(connection, table, {"node": name, "document": msgspec.json.encode(facts)})
    if gone := [name for name in before if name not in after]:
        connection.execute(table.delete().where(table.c.node.in_(gone)))


def insert_into(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Inserts or updates. Both databases have ON CONFLICT; the SQL standard has not."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def upsert(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Inserts the row, or changes the one of its primary key."""
    key = [column.name for column in table.primary_key]
    statement = insert_into(connection, table).values(row)
    changed = {name: statement.excluded[name] for name in row if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changed))


def _upsert_all(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows have the same columns: one statement, executed for each."""
    if not rows:
        return
    key = [column.name for column in table.primary_key]
    statement = insert_into(connection, table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changed), list(rows))


def _node_row(node: NodeFacts) -> Mapping[str, Any]:
    drain = node.drain
    return {
        "node": node.node,
        "state": node.state,
        "since_us": to_us(node.since),
        "drain": drain.status if drain else "",
        "theirs": int(drain is not None and drain.theirs),
        "queued_reason": drain.queued_reason if drain else "",
        "incident": drain.incident if drain else "",
        "document": msgspec.json.encode(node),
    }


def _save_incident(connection: Connection, before: NodeFacts | None, after: NodeFacts, now: datetime) -> None:
    old, new = before.drain if before else None, after.drain
    if old is not None and (new is None or new.incident != old.incident):
        closed = update(schema.incidents).where(schema.incidents.c.incident == old.incident)
        connection.execute(closed.values(closed_us=to_us(now)))
    if new is None or new == old:
        return
    row = {
        "incident": new.incident,
        "node": after.node,
        "fault": new.fault,
        "component": new.component,
        "severity": int(new.severity),
        "causes": ",".join(new.causes),
        "opened_us": to_us(new.wanted_at),
        "drained_us": to_us(new.done_at) if new.done_at else None,
    }
    upsert(connection, schema.incidents, row)


def _save_maintenance(connection: Connection, before: NodeFacts | None, after: NodeFacts, now: datetime) -> None:
    old, new = before.maintenance if before else None, after.maintenance
    if old == new:
        return
    m = schema.maintenance
    if old is not None:
        ended = update(m).where(m.c.node == after.node, m.c.since_us == to_us(old.since))
        connection.execute(ended.values(until_us=to_us(now)))
    if new is not None:
        row = {"node": after.node, "since_us": to_us(new.since), "until_us": None}
        upsert(connection, m, {**row, "actor": new.actor, "reason": new.reason, "source": new.source})


def _save_fleet_incidents(connection: Connection, before: FleetState, after: FleetState, now: datetime) -> None:
    """They are incidents of no node; `component` says what is shared."""
    for gone in {i.id for i in before.fleet_incidents} - {i.id for i in after.fleet_incidents}:
        closed = update(schema.incidents).where(schema.incidents.c.incident == gone)
        connection.execute(closed.values(closed_us=to_us(now)))
    for incident in after.fleet_incidents:
        if incident in before.fleet_incidents:
            continue
        row = {
            "incident": incident.id,
            "node": "",
            "fault": incident.fault,
            "component": incident.shared or incident.place,
            "severity": 0,
            "causes": incident.fault,
            "opened_us": to_us(incident.opened_at),
            "drained_us": None,
        }
        upsert(connection, schema.incidents, row)


def _transition_row(t: Transition) -> Mapping[str, Any]:
    states = {"before": t.before or "", "after": t.after}
    return {"node": t.node, **states, "cause": t.cause, "actor": t.actor, "at_us": to_us(t.at)}


def _action_row(action: Action, now: datetime) -> Mapping[str, Any]:
    status = "shadow" if action.kind is ActionKind.SHADOW else "pending"
    values = {name: getattr(action, name) for name in action.__slots__}
    values |= {"severity": int(action.severity), "hold": int(action.hold)}
    at = to_us(now)
    over = at if status != "pending" else None
    kept = {"status": status, "outcome": "", "detail": "", "attempts": 0, "next_try_us": 0}
    return {**values, **kept, "decided_us": at, "finished_us": over}


def _notice_row(notice: Notice, now: datetime) -> Mapping[str, Any]:
    """The row of a notice, which is done once it is written."""
    action = Action(notice.id, ActionKind.SHADOW, notice.node, notice.incident, text=notice.text)
    return {**_action_row(action, now), "kind": NOTICE, "status": "done"}


def transitions_of(connection: Connection, nodes: Sequence[str] = ()) -> list[Transition]:
    """Every change of state, oldest first."""
    t = schema.transitions
    query = select(t).order_by(t.c.id)
    if nodes:
        query = query.where(t.c.node.in_(nodes))
    return [
        Transition(
            r.node, NodeState(r.before) if r.before else None, NodeState(r.after), r.cause, r.actor, from_us(r.at_us)
        )
        for r in connection.execute(query)
    ]
