"""Critical findings that are stored and wait behind a backlog: the policy takes them before it.

What is stored later of the same finding is taken with it, so that a fault that has ended meanwhile drains nothing. In
its turn each event comes again, and changes nothing: the policy knows its number.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, select

from nodetriage.controller.engine.node_events import node_event
from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.policy.state import NodeEvent
from nodetriage.controller.store import history, mappers, schema
from nodetriage.v1 import health_pb2

MOST_WAITING = 10_000  # what is beyond comes in its turn
AT_ONCE = 50
_KINDS = (health_pb2.EVENT_KIND_RAISED, health_pb2.EVENT_KIND_CHANGED, health_pb2.EVENT_KIND_REPEATED)


class _Waits(NamedTuple):
    upto: int  # it is stored by this cursor
    node: str
    boot_id: str
    seq: int
    check_name: str
    component: str
    fault: str


class Overtaking:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[_Waits] = deque()

    def hear(self, rows: Iterable[mappers.Row], newest: int) -> None:
        """Rows of `events` that are on the disk now; `newest` is the last cursor."""
        for row in rows:
            is_one = row["severity"] >= health_pb2.SEVERITY_CRITICAL and row["kind"] in _KINDS
            if is_one and row["boot_id"] != CONTROLLER_BOOT and len(self._waiting) < MOST_WAITING:
                self._waiting.append(_Waits(newest, *(row[name] for name in _Waits._fields[1:])))

    def take(self, cursor: int) -> tuple[_Waits, ...]:
        """The next ones that lie beyond the cursor and are no part of what comes next anyway."""
        while self._waiting and self._waiting[0].upto <= cursor:
            self._waiting.popleft()
        return tuple(self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting))))


def waiting_after(connection: Connection, cursor: int) -> tuple[list[mappers.Row], int]:
    """The critical events beyond the cursor, and the newest cursor: for `hear`, after a start."""
    e = schema.events.c
    columns = [e[name] for name in ("severity", "kind", *_Waits._fields[1:])]
    critical = (e.severity >= health_pb2.SEVERITY_CRITICAL) & e.kind.in_(_KINDS)
    query = select(*columns).where(e.id > cursor, critical).order_by(e.id).limit(MOST_WAITING)
    return [dict(row._mapping) for row in connection.execute(query)], history.newest_cursor(connection)


def events_of(connection: Connection, waiting: Iterable[_Waits], cursor: int) -> list[NodeEvent]:
    """What is stored of these findings beyond the cursor, from the event named on."""
    e, n = schema.events.c, schema.nodes.c
    joined = select(schema.events, n.profile, n.agent_version, n.boot_id.label("present_boot")).join(
        schema.nodes, n.node == e.node
    )
    found: dict[int, NodeEvent] = {}
    for one in waiting:
        same = (e.check_name == one.check_name) & (e.component == one.component) & (e.fault == one.fault)
        of_boot = (e.node == one.node) & (e.boot_id == one.boot_id) & (e.seq >= one.seq)
        for row in connection.execute(joined.where(of_boot, same, e.id > cursor)):
            found[row.id] = node_event(
                row, row.profile, row.agent_version, present_boot=row.present_boot, overtakes=True
            )
    return [found[cursor] for cursor in sorted(found)]
