"""The nodes that should report, and the controller's word on itself, in the database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select

from nodetriage.controller.policy.agents.coverage import Known, Presence
from nodetriage.controller.store import schema
from nodetriage.controller.store.state_store import from_us, to_us, upsert


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What the leading controller says of itself every few seconds."""

    version: str = ""
    mode: str = ""
    breaker_open: bool = False
    breaker_why: str = ""
    paused_until: datetime | None = None
    drains_last_hour: int = 0
    drains_per_hour: int = 0  # the limit
    nodes_out: int = 0  # newly drained by us, not in the repair pool
    nodes_out_limit: int = 0
    drains_queued: int = 0
    fleet_incidents: int = 0
    in_maintenance: int = 0
    scheduler_nodes: int = 0  # that the scheduler lists
    scheduler_read_at: datetime | None = None
    presences: dict[str, int] = field(default_factory=dict)


def load(connection: Connection, names: Sequence[str] = ()) -> dict[str, Known]:
    """All of them, or those of `names`."""
    query = select(schema.known_nodes)
    if names:
        query = query.where(schema.known_nodes.c.node.in_(names))
    return {row.node: _known(row) for row in connection.execute(query)}


def save(connection: Connection, changed: Iterable[Known], gone: Sequence[str]) -> None:
    for known in changed:
        row = {
            "node": known.node,
            "presence": str(known.presence),
            "since_us": to_us(known.since),
            "why": known.why,
            "in_scheduler": int(known.in_scheduler),
            "slurm": known.slurm,
            "reason": known.reason,
            "reason_by": known.reason_by,
        }
        upsert(connection, schema.known_nodes, row)
    if gone:
        connection.execute(delete(schema.known_nodes).where(schema.known_nodes.c.node.in_(gone)))


def ever_heard(connection: Connection) -> list[str]:
    """Nodes whose agent connected once."""
    return list(connection.execute(select(schema.nodes.c.node)).scalars())


def save_status(connection: Connection, status: ControllerStatus, now: datetime) -> None:
    row = {"id": 1, "at_us": to_us(now), "document": msgspec.json.encode(status)}
    upsert(connection, schema.controller_status, row)


def load_status(connection: Connection) -> tuple[ControllerStatus, int] | None:
    """The last word and when it was written, in unix microseconds; None where no controller has run."""
    row = connection.execute(select(schema.controller_status)).one_or_none()
    return None if row is None else (msgspec.json.decode(row.document, type=ControllerStatus), row.at_us)


def _known(row: Any) -> Known:
    known = Presence(row.presence)
    about = (row.why, bool(row.in_scheduler), row.slurm, row.reason, row.reason_by)
    return Known(row.node, known, from_us(row.since_us), *about)
