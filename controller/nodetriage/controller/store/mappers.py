"""From messages to rows: the values for the tables, and the statements that write them."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Executable, LargeBinary, bindparam, func, update
from sqlalchemy.dialects import postgresql, sqlite

from nodetriage.controller.policy.state import EventKind
from nodetriage.controller.store.poison import KEPT_BYTES, MOST_WHY, Poison
from nodetriage.controller.store.schema import events, nodes
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2

Row = Mapping[str, Any]

EVENT_KINDS = {
    health_pb2.EVENT_KIND_RAISED: EventKind.RAISED,
    health_pb2.EVENT_KIND_CHANGED: EventKind.CHANGED,
    health_pb2.EVENT_KIND_REPEATED: EventKind.REPEATED,
    health_pb2.EVENT_KIND_CLEARED: EventKind.CLEARED,
    health_pb2.EVENT_KIND_AGENT_STARTED: EventKind.STARTED,
}


@dataclass(frozen=True, slots=True)
class Hello:
    """A node as its agent introduces it."""

    node: str
    boot_id: str
    agent_version: str
    profile: str


@dataclass(frozen=True, slots=True)
class Seen:
    """When a node last spoke: any message counts. `heartbeat` is whole, as of `heartbeat_us`."""

    node: str
    at_s: float  # monotonic
    at_us: int  # unix, UTC
    heartbeat: health_pb2.Heartbeat | None = None
    heartbeat_us: int | None = None  # when that came


def node_row(hello: Hello, at_us: int) -> Row:
    return {
        "node": hello.node,
        "boot_id": hello.boot_id,
        "agent_version": stored_text(hello.agent_version),
        "profile": stored_text(hello.profile),
        "first_seen_us": at_us,
        "last_seen_us": at_us,
    }


def seen_row(seen: Seen) -> Row:
    beat = seen.heartbeat.SerializeToString() if seen.heartbeat else None
    return {"of_node": seen.node, "seen_us": seen.at_us, "beat_us": seen.heartbeat_us, "beat": beat}


def event_row(node: str, event: health_pb2.Event, received_us: int) -> Row:
    """Keeps the whole message; the columns serve queries."""
    return {
        "node": node,
        "boot_id": event.boot_id,
        "seq": event.seq,
        "at_us": event.at_unix_us,
        "received_us": received_us,
        "kind": event.kind,
        "check_name": stored_text(event.check),
        "component": stored_text(event.component),
        "fault": stored_text(event.fault),
        "severity": event.severity,
        "message": event.SerializeToString(),
    }


def poison_of(row: Row, why: str) -> Poison:
    """What is kept of a row of `event_row` that the database refuses."""
    message = row["message"]
    named = (row["node"], row["boot_id"], row["seq"], row["received_us"])
    return Poison(*named, len(message), why[:MOST_WHY], message[:KEPT_BYTES])


def ranges_of(batch: Iterable[health_pb2.Event]) -> list[SeqRange]:
    """The (boot, seq) of a batch as few ranges, whatever its order."""
    found: list[SeqRange] = []
    for boot_id, seq in sorted({(event.boot_id, event.seq) for event in batch}):
        if found and found[-1].boot_id == boot_id and found[-1].last == seq - 1:
            found[-1] = SeqRange(boot_id, found[-1].first, seq)
        else:
            found.append(SeqRange(boot_id, seq, seq))
    return found


@functools.cache
def statements(dialect: str) -> Mapping[str, Executable]:
    """The bulk statements by name, in the order in which a group must run them: events refer to nodes."""
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    hello = insert(nodes)
    again = {name: hello.excluded[name] for name in ("boot_id", "agent_version", "profile", "last_seen_us")}
    new_events = insert(events).on_conflict_do_nothing(index_elements=["node", "boot_id", "seq"])
    seen = update(nodes).where(nodes.c.node == bindparam("of_node"), nodes.c.last_seen_us < bindparam("seen_us"))
    return {
        "hello": hello.on_conflict_do_update(index_elements=["node"], set_=again),
        "events": new_events,
        "seen": seen.values(
            last_seen_us=bindparam("seen_us"),
            heartbeat_us=func.coalesce(bindparam("beat_us", type_=BigInteger), nodes.c.heartbeat_us),
            heartbeat=func.coalesce(bindparam("beat", type_=LargeBinary), nodes.c.heartbeat),
        ),
    }


def stored_text(value: str) -> str:
    """The text as the database keeps it."""
    # PostgreSQL's text holds every character but NUL.
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
