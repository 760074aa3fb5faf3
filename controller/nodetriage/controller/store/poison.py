"""Events that cannot be stored as they are: set aside with the reason, and acked, so that nothing waits behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, func, select

from nodetriage.controller.store import schema
from nodetriage.v1 import health_pb2

MOST_WHY = 300  # characters
KEPT_BYTES = 4096  # of a message: its head says what it was
PER_BATCH, PER_NODE, IN_ALL = 20, 100, 10_000  # rows that are kept, the newest ones


@dataclass(frozen=True, slots=True)
class Poison:
    """One event that was set aside. `size` is the whole message's in bytes, `head` its beginning."""

    node: str
    boot_id: str
    seq: int
    received_us: int
    size: int
    why: str
    head: bytes


def of(node: str, event: health_pb2.Event, received_us: int, why: str) -> Poison:
    message = event.SerializeToString()
    return Poison(node, event.boot_id, event.seq, received_us, len(message), why[:MOST_WHY], message[:KEPT_BYTES])


def keep(connection: Connection, events: Sequence[Poison]) -> None:
    """Writes them, and removes the oldest rows beyond the bounds of each node and of the table."""
    if not events:
        return
    t = schema.poison
    kept = events[-PER_BATCH:]
    connection.execute(t.insert(), [{name: getattr(one, name) for name in one.__slots__} for one in kept])
    for node in {one.node for one in kept}:
        newest = select(t.c.id).where(t.c.node == node).order_by(t.c.id.desc()).offset(PER_NODE).limit(1)
        connection.execute(t.delete().where(t.c.node == node, t.c.id <= newest.scalar_subquery()))
    last = connection.scalar(select(func.max(t.c.id))) or 0
    connection.execute(t.delete().where(t.c.id <= last - IN_ALL))


def newest(connection: Connection, node: str, limit: int) -> list[Poison]:
    """The last `limit` of a node, or of all where `node` is ""; the oldest of them first."""
    query = select(schema.poison).order_by(schema.poison.c.id.desc()).limit(limit)
    if node:
        query = query.where(schema.poison.c.node == node)
    return [_poison(row) for row in reversed(connection.execute(query).all())]


def _poison(row: Row[tuple[object, ...]]) -> Poison:
    return Poison(row.node, row.boot_id, row.seq, row.received_us, row.size, row.why, row.head)
