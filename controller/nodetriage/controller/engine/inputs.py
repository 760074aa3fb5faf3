"""The inputs of the policy, in the order in which it took them: stored so that any policy can be tried on them later.

Agents' events are in their own table; of the scheduler's view what changed is kept, of ticks those that did something.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from nodetriage.controller.engine.node_events import node_event
from nodetriage.controller.policy.fleet_state import AgentAhead, ChecksReported, LemonsFound
from nodetriage.controller.policy.state import (
    ActionDone,
    ContactChanged,
    Event,
    FleetState,
    NodeEvent,
    OperatorCommand,
    SchedulerFailed,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.policy.verify.replay import Entry, History, PolicyLoaded, ReplayInput
from nodetriage.controller.scheduler import NodeView, ReservationView
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.store import schema
from nodetriage.controller.store.state_store import from_us, to_us


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A reading of the scheduler, against the one before: None is "as before"; a `whole` one has no before."""

    read_at: datetime
    changed: tuple[NodeView, ...] = ()
    gone: tuple[str, ...] = ()
    reservations: tuple[ReservationView, ...] | None = None
    places: Mapping[str, tuple[str, ...]] | None = None
    whole: bool = False

    @property
    def is_one(self) -> bool:
        return bool(self.changed or self.gone or self.whole) or self.reservations is not None or self.places is not None


@dataclass(frozen=True, slots=True)
class View:
    """The scheduler as it was last seen."""

    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    reservations: tuple[ReservationView, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def change(self, seen: SchedulerSeen) -> ViewChange:
        return ViewChange(
            seen.read_at,
            tuple(v for name, v in seen.nodes.items() if self.nodes.get(name) != v),
            tuple(self.nodes.keys() - seen.nodes.keys()),
            None if seen.reservations == self.reservations else seen.reservations,
            None if seen.places == self.places else seen.places,
        )

    def after(self, change: ViewChange) -> "View":
        before = View() if change.whole else self
        nodes = {n: v for n, v in before.nodes.items() if n not in change.gone} | {v.name: v for v in change.changed}
        reservations = before.reservations if change.reservations is None else change.reservations
        return View(nodes, reservations, before.places if change.places is None else change.places)

    def seen(self, read_at: datetime) -> SchedulerSeen:
        return SchedulerSeen(read_at, self.nodes, self.reservations, self.places)


@dataclass(frozen=True, slots=True)
class Batch:
    """Agents' events that were taken at once, up to a cursor; and what of their nodes is no part of the events.

    With `only`, just those: they overtook others, and come again in their turn.
    """

    upto: int
    about: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # profile and version, where they changed
    late: tuple[int, ...] = ()  # cursors of events of a boot that was over by then
    only: tuple[int, ...] = ()  # cursors


TYPES: Mapping[str, Any] = {
    "tick": Tick,
    "done": ActionDone,
    "command": OperatorCommand,
    "contact": ContactChanged,
    "failed": SchedulerFailed,
    "checks": ChecksReported,
    "lemons": LemonsFound,
    "ahead": AgentAhead,
}
_NAMES = {kind: name for name, kind in TYPES.items()}


class Recorder:
    """Says what of a step's events is to be kept. Knows the last reading that was, so that only changes are."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._about: dict[str, tuple[str, str]] = {}  # node -> profile and agent's version, as last kept

    def rows(self, events: Sequence[Event], now: datetime, effect: bool) -> list[Mapping[str, Any]]:
        """Rows of the table `inputs`; the caller tells `kept` when they are on disk."""
        found = []
        if told := [e for e in events if isinstance(e, NodeEvent)]:
            about = {e.node: (e.profile, e.version) for e in told}
            new = {node: facts for node, facts in about.items() if self._about.get(node) != facts}
            late = tuple(e.id for e in told if not e.present)
            if told[0].overtakes:
                found.append(_row("overtook", now, Batch(0, new, late, tuple(e.id for e in told))))
            else:
                found.append(_row("events", now, Batch(told[-1].id, new, late)))
        for event in events:
            if isinstance(event, SchedulerSeen):
                change = self._change(event)
                if effect or change.is_one:
                    found.append(_row("seen", now, change))
            elif not isinstance(event, NodeEvent) and (effect or not isinstance(event, Tick | SchedulerFailed)):
                found.append(_row(_NAMES[type(event)], now, event))
        return found

    def kept(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, SchedulerSeen):
                self._view = (self._view or View()).after(self._change(event))
            elif isinstance(event, NodeEvent):
                self._about[event.node] = (event.profile, event.version)

    def _change(self, event: SchedulerSeen) -> ViewChange:
        if self._view is not None:
            return self._view.change(event)
        return ViewChange(event.read_at, tuple(event.nodes.values()), (), event.reservations, event.places, whole=True)


def policy_row(policy: Policy, now: datetime) -> Mapping[str, Any]:
    return _row("policy", now, policy)


def snapshot_row(state: FleetState, now: datetime) -> Mapping[str, Any]:
    """The whole memory: a replay may begin here."""
    document = msgspec.json.encode(state, enc_hook=dict)  # of its maps
    return {"at_us": to_us(now), "kind": "snapshot", "document": zlib.compress(document)}


def snapshot_of(document: bytes) -> FleetState:
    return msgspec.json.decode(zlib.decompress(document), type=FleetState)


def add(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(schema.inputs.insert(), list(rows))


def _row(kind: str, now: datetime, value: Any) -> Mapping[str, Any]:
    return {"at_us": to_us(now), "kind": kind, "document": msgspec.json.encode(value)}


def events_after(connection: Connection, cursor: int, limit: int) -> list[NodeEvent]:
    """The next stored events as the policy takes them, oldest first."""
    n = schema.nodes.c
    query = (
        select(schema.events, n.profile, n.agent_version, n.boot_id.label("present_boot"))
        .join(schema.nodes, n.node == schema.events.c.node)
        .where(schema.events.c.id > cursor)
        .order_by(schema.events.c.id)
        .limit(limit)
    )
    return [
        node_event(row, row.profile, row.agent_version, present_boot=row.present_boot)
        for row in connection.execute(query)
    ]


def history(connection: Connection, since: datetime) -> History:
    """All inputs from the last snapshot before `since` on, or from the first one there is.

    Read it while the connection is open: its entries come as they are asked for. Raises LookupError without a snapshot.
    """
    i = schema.inputs
    of_kind = select(i.c.id).where(i.c.kind == "snapshot")
    before = of_kind.where(i.c.at_us <= to_us(since)).order_by(i.c.id.desc()).limit(1)
    first = connection.execute(before).scalar() or connection.execute(of_kind.order_by(i.c.id).limit(1)).scalar()
    if first is None:
        raise LookupError("nothing is recorded yet that a replay could begin with")
    document = connection.execute(select(i.c.document).where(i.c.id == first)).scalar_one()
    start = snapshot_of(document)
    return History(start, _entries(connection, first, start.cursor))


def _entries(connection: Connection, after: int, cursor: int) -> Iterator[Entry]:
    view, about = View(), dict[str, tuple[str, str]]()
    query = select(schema.inputs).where(schema.inputs.c.id > after).order_by(schema.inputs.c.id)
    for row in connection.execution_options(stream_results=True, max_row_buffer=1000).execute(query):
        at = from_us(row.at_us)
        if row.kind == "policy":
            yield PolicyLoaded(at, msgspec.json.decode(row.document, type=Policy))
        elif row.kind in ("events", "overtook"):
            batch = msgspec.json.decode(row.document, type=Batch)
            about |= batch.about
            yield ReplayInput(at, _batch(connection, cursor, batch, about))
            cursor = max(cursor, batch.upto)
        elif row.kind == "seen":
            change = msgspec.json.decode(row.document, type=ViewChange)
            view = view.after(change)
            yield ReplayInput(at, (view.seen(change.read_at),))
        elif row.kind in TYPES:
            yield ReplayInput(at, (msgspec.json.decode(row.document, type=TYPES[row.kind]),))


def _batch(
    connection: Connection, cursor: int, batch: Batch, about: Mapping[str, tuple[str, str]]
) -> tuple[NodeEvent, ...]:
    e = schema.events
    of = e.c.id.in_(batch.only) if batch.only else (e.c.id > cursor) & (e.c.id <= batch.upto)
    query = select(e).where(of).order_by(e.c.id)
    late = set(batch.late)
    rows = connection.execute(query).all()
    return tuple(
        node_event(row, *about.get(row.node, ("", "")), late=row.id in late, overtakes=bool(batch.only)) for row in rows
    )
