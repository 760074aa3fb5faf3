"""Reads the store: queries over a connection that return frozen values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.store.schema import events, nodes
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2

# The kinds of event that concern a finding.
_ABOUT_A_FINDING = (
    health_pb2.EVENT_KIND_RAISED,
    health_pb2.EVENT_KIND_CHANGED,
    health_pb2.EVENT_KIND_REPEATED,
    health_pb2.EVENT_KIND_CLEARED,
)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as it last described itself. Times are unix microseconds, UTC."""

    node: str
    boot_id: str
    agent_version: str
    profile: str
    first_seen_us: int
    last_seen_us: int
    heartbeat_us: int | None  # when the heartbeat below came; both None before the first
    heartbeat: bytes | None  # nodetriage.v1.Heartbeat


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event with what the controller added: its cursor (grows, may skip), its node, when it came."""

    cursor: int
    node: str
    received_us: int
    event: health_pb2.Event


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Empty and zero mean all. `since_us` is the node's clock; `after` a cursor."""

    nodes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    min_severity: int = 0
    since_us: int | None = None
    after: int = 0
    upto: int | None = None


def all_nodes(connection: Connection, names: Sequence[str] = ()) -> list[NodeRow]:
    """Every node whose agent ever connected, or those of `names`; by name."""
    query = select(nodes).order_by(nodes.c.node)
    if names:
        query = query.where(nodes.c.node.in_(names))
    return [NodeRow(*row) for row in connection.execute(query)]


def newest_cursor(connection: Connection) -> int:
    """The cursor of the last stored event; 0 where there is none."""
    return connection.execute(select(func.max(events.c.id))).scalar() or 0


def events_after(connection: Connection, wanted: EventFilter, limit: int) -> list[StoredEvent]:
    """At most `limit` events beyond the cursor `wanted.after`, oldest first."""
    query = _filtered(wanted).order_by(events.c.id).limit(limit)
    return [_stored(row) for row in connection.execute(query)]


def newest_events(connection: Connection, wanted: EventFilter, limit: int) -> list[StoredEvent]:
    """The last `limit` events, oldest of them first."""
    query = _filtered(wanted).order_by(events.c.id.desc()).limit(limit)
    return [_stored(row) for row in reversed(connection.execute(query).all())]


def newest_seq(connection: Connection, node: str, boot_id: str) -> int:
    """The highest number of a stored event of the node's boot; 0 where there is none."""
    e = events.c
    return connection.execute(select(func.max(e.seq)).where(e.node == node, e.boot_id == boot_id)).scalar() or 0


def stored_ranges(connection: Connection, node: str, boot_id: str, limit: int = 1000) -> list[SeqRange]:
    """The stored events of a node's boot: more than one range means that some between them are missing.

    At most `limit` ranges, lowest first: what is left out is sent again and recognised.
    """
    of_boot = (events.c.node == node) & (events.c.boot_id == boot_id)
    # Consecutive numbers keep the same distance from their row number.
    island = (events.c.seq - func.row_number().over(order_by=events.c.seq)).label("island")
    numbered = select(events.c.seq, island).where(of_boot).subquery()
    first, last = func.min(numbered.c.seq).label("first"), func.max(numbered.c.seq).label("last")
    query = select(first, last).group_by(numbered.c.island).order_by(first).limit(limit)
    return [SeqRange(boot_id, row.first, row.last) for row in connection.execute(query)]


def open_findings(connection: Connection, names: Sequence[str] = ()) -> list[StoredEvent]:
    """The last event of each open finding of the nodes' present boot: worst first within a node."""
    newest = _newest_of(events.c.node, events.c.check_name, events.c.component, events.c.fault)
    newest = newest.where(events.c.kind.in_(_ABOUT_A_FINDING))
    rows = _last_words(connection, newest, names)
    found = [_stored(row) for row in rows if row.kind != health_pb2.EVENT_KIND_CLEARED]
    return sorted(found, key=lambda s: (s.node, -s.event.severity, s.event.check, s.event.component))


def check_outcomes(connection: Connection, names: Sequence[str] = ()) -> list[StoredEvent]:
    """The last OUTCOME event of each check in the nodes' present boot, by node and check."""
    newest = _newest_of(events.c.node, events.c.check_name).where(events.c.kind == health_pb2.EVENT_KIND_OUTCOME)
    found = [_stored(row) for row in _last_words(connection, newest, names)]
    return sorted(found, key=lambda s: (s.node, s.event.check))


def _newest_of(*key: Any) -> Select[Any]:
    # By seq and not by id: a live event may be stored before an older one of the backlog.
    rank = func.row_number().over(partition_by=key, order_by=events.c.seq.desc()).label("rank")
    present = (nodes.c.boot_id == events.c.boot_id) | (events.c.boot_id == CONTROLLER_BOOT)
    return select(events, rank).join(nodes, (nodes.c.node == events.c.node) & present)


def _last_words(connection: Connection, newest: Select[Any], names: Sequence[str]) -> Sequence[Row[Any]]:
    if names:
        newest = newest.where(events.c.node.in_(names))
    ranked = newest.subquery()
    return connection.execute(select(ranked).where(ranked.c.rank == 1)).all()


def _filtered(wanted: EventFilter) -> Select[Any]:
    query = select(events).where(events.c.id > wanted.after)
    if wanted.upto is not None:
        query = query.where(events.c.id <= wanted.upto)
    if wanted.nodes:
        query = query.where(events.c.node.in_(wanted.nodes))
    if wanted.faults:
        query = query.where(events.c.fault.in_(wanted.faults))
    if wanted.min_severity:
        query = query.where(events.c.severity >= wanted.min_severity)
    if wanted.since_us is not None:
        query = query.where(events.c.at_us >= wanted.since_us)
    return query


def _stored(row: Row[Any]) -> StoredEvent:
    return StoredEvent(row.id, row.node, row.received_us, health_pb2.Event.FromString(row.message))
