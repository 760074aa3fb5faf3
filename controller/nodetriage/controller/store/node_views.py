"""Every node as an operator should see it: our state, whether its agent reports, Slurm's word, and what is open."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select

from nodetriage.checks.model import Scalar
from nodetriage.controller.policy.agents.coverage import Known, Presence
from nodetriage.controller.policy.fleet_state import MaintenanceFact
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.store import history, known_nodes
from nodetriage.controller.store.history import NodeRow
from nodetriage.controller.store.known_nodes import ControllerStatus
from nodetriage.controller.store.schema import events, node_states
from nodetriage.controller.store.state_store import to_us
from nodetriage.v1 import health_pb2

UNKNOWN = "Unknown"  # the state of a node that nobody has looked at lately
ALIVE_S = 20.0  # a controller whose last word on itself is older does not run
_NEED_A_LOOK = ("Healthy", "Suspect", "BurnIn")
_AT_ONCE = 5_000  # events in one query


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding that is open by the policy's account; its evidence is that of its last event."""

    check: str
    component: str
    fault: str
    severity: int
    raised_us: int
    times: int
    event_id: int
    evidence: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `row` is None where no agent ever connected, `known` where no controller has counted it yet."""

    node: str
    row: NodeRow | None = None
    known: Known | None = None
    policy_state: str = ""  # "" where the policy does not know it yet
    since_us: int = 0
    drain: str = ""
    theirs: bool = False
    queued_reason: str = ""
    incident: str = ""
    maintenance: str = ""  # who works on it, and why
    findings: tuple[OpenFinding, ...] = ()  # worst first
    looked: bool = False  # its agent reports to a controller that runs

    @property
    def state(self) -> str:
        """Never Healthy without a look: Unknown where its agent does not report, or no controller runs."""
        needs_a_look = self.policy_state in _NEED_A_LOOK and not self.looked
        return UNKNOWN if needs_a_look or not self.policy_state else self.policy_state

    @property
    def presence(self) -> str:
        """Whether its agent reports: heard, silent, never, ..."""
        if self.known is not None:
            return str(self.known.presence)
        return str(Presence.HEARD if self.looked else Presence.NEVER if self.row is None else Presence.SILENT)

    @property
    def slurm(self) -> str:
        """Slurm's state, with its reason where that is not ours."""
        if self.known is None or not self.known.in_scheduler:
            return ""
        foreign = self.known.reason if parse_reason(self.known.reason) is None else ""
        by = f" ({self.known.reason_by})" if foreign and self.known.reason_by else ""
        return f"{self.known.slurm} {foreign}{by}".rstrip()


class _Finding(msgspec.Struct):
    """What this needs of state.FindingFact."""

    check: str
    component: str
    fault: str
    severity: int
    raised_at: datetime
    event_id: int
    times: int = 1
    is_open: bool = True


class _Facts(msgspec.Struct):
    """What this needs of state.NodeFacts; the rest of the document is not read."""

    findings: list[_Finding] = []
    maintenance: MaintenanceFact | None = None


def is_alive(status: tuple[ControllerStatus, int] | None, now_us: int) -> bool:
    """Whether a controller that writes this database runs."""
    return status is not None and now_us - status[1] <= ALIVE_S * 1_000_000


def node_views(
    connection: Connection, now_us: int, names: Sequence[str] = (), *, evidence: bool = True
) -> list[NodeView]:
    """All nodes that an agent, the scheduler or the settings name, or those of `names`; by name.

    Without `evidence` the findings have none: it is half of the reading.
    """
    alive = is_alive(known_nodes.load_status(connection), now_us)
    known = known_nodes.load(connection, names)
    rows = {row.node: row for row in history.all_nodes(connection, names)}
    query = select(node_states)
    states = connection.execute(query.where(node_states.c.node.in_(names)) if names else query)
    views = {
        name: NodeView(
            name, rows.get(name), known.get(name), looked=alive and _is_there(rows.get(name), known.get(name))
        )
        for name in {*known, *rows}
    }
    decoder = msgspec.json.Decoder(_Facts)
    read = [(row, decoder.decode(row.document)) for row in states]
    wanted = [f.event_id for _, facts in read for f in facts.findings if f.is_open] if evidence else []
    said = _evidence(connection, wanted)
    for row, facts in read:
        working = facts.maintenance
        views[row.node] = NodeView(
            row.node,
            rows.get(row.node),
            known.get(row.node),
            row.state,
            row.since_us,
            row.drain,
            bool(row.theirs),
            row.queued_reason,
            row.incident,
            f"{working.actor}: {working.reason}" if working is not None else "",
            _open(facts.findings, said),
            alive and _is_there(rows.get(row.node), known.get(row.node)),
        )
    return [views[name] for name in sorted(views)]


def _is_there(row: NodeRow | None, known: Known | None) -> bool:
    """Whether its agent reports. One that no survey has counted yet connected a moment ago."""
    return row is not None if known is None else known.presence is Presence.HEARD


def _evidence(connection: Connection, cursors: Sequence[int]) -> dict[int, dict[str, Scalar]]:
    """Of the events with these cursors, as far as they are still kept."""
    found = {}
    for first in range(0, len(cursors), _AT_ONCE):
        some = events.c.id.in_(cursors[first : first + _AT_ONCE])
        for row in connection.execute(select(events.c.id, events.c.message).where(some)):
            said = health_pb2.Event.FromString(row.message).evidence
            found[row.id] = {name: getattr(v, v.WhichOneof("kind") or "text") for name, v in sorted(said.items())}
    return found


def _open(findings: Iterable[_Finding], said: Mapping[int, Mapping[str, Scalar]]) -> tuple[OpenFinding, ...]:
    found = [
        OpenFinding(
            f.check, f.component, f.fault, f.severity, to_us(f.raised_at), f.times, f.event_id, said.get(f.event_id, {})
        )
        for f in findings
        if f.is_open
    ]
    return tuple(sorted(found, key=lambda f: (-f.severity, f.check, f.component)))
