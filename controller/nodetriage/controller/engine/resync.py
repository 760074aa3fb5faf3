"""Brings the policy's findings into agreement with what agents state; policy/agents/resync.py says what differs.

A heartbeat's digest is compared when all that its agent sent before is evaluated. Where it differs and the agent has
not stated its set, it is asked to; what then differs is stored as events, and the policy takes those.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

import structlog
from sqlalchemy import Connection

from nodetriage.controller.engine.node_events import confidence_of, severity_of
from nodetriage.controller.policy.agents import resync
from nodetriage.controller.policy.agents.resync import Correction, StatedFinding, StatedSet
from nodetriage.controller.policy.fleet_state import AgentAhead
from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.policy.state import Event, EventKind, FindingFact, FleetState, Step
from nodetriage.controller.store import history
from nodetriage.controller.store.mappers import stored_text
from nodetriage.controller.store.state_store import to_us
from nodetriage.service import open_set
from nodetriage.v1 import health_pb2

T = TypeVar("T")
log = structlog.get_logger("resync")

AGAIN_S = 10.0  # between two corrections, or two questions, of one node
IN_FLIGHT_S = 60.0  # an agent whose events never all arrive is compared all the same, with what is newer left alone
MOST_FINDINGS = 256  # of one set; an agent states no more
LONGEST_NAME, LARGEST_BYTES = 1024, 65_536  # of one finding in it; what is larger is left out
_LOOKED = (health_pb2.OUTCOME_OK, health_pb2.OUTCOME_FINDINGS)
_KINDS = {
    EventKind.RAISED: health_pb2.EVENT_KIND_RAISED,
    EventKind.CHANGED: health_pb2.EVENT_KIND_CHANGED,
    EventKind.CLEARED: health_pb2.EVENT_KIND_CLEARED,
    EventKind.STARTED: health_pb2.EVENT_KIND_AGENT_STARTED,
}


class Reconciling(Protocol):
    """What this needs of the reconciler."""

    @property
    def state(self) -> FleetState: ...

    def now(self) -> datetime: ...

    async def record(self, node: str, events: list[health_pb2.Event]) -> None: ...

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def post(self, event: Event) -> Step: ...


@dataclass(slots=True)
class _Node:
    """What an agent's heartbeats say of its open set."""

    beat: health_pb2.Heartbeat
    upto: int  # the newest cursor when the heartbeat came
    looked: dict[str, bool]  # by check, as of the last heartbeat that names it
    stated: health_pb2.OpenSet | None = None  # the last set; its digest says whether it is still the agent's
    differs_since_s: float | None = None
    done_s: float = float("-inf")  # when it was last asked or corrected
    corrected: tuple[Correction, ...] = ()


class Resync:
    """Belongs to the event loop. `ask` makes a node's agent state its set; `newest` is the last stored cursor."""

    def __init__(self, reconciler: Reconciling, ask: Callable[[str], None], newest: Callable[[], int]) -> None:
        self._reconciler, self._ask, self._newest = reconciler, ask, newest
        self._nodes: dict[str, _Node] = {}
        self._unseen: dict[str, None] = {}  # nodes with a heartbeat that was not compared yet
        self._known: dict[str, tuple[tuple[FindingFact, ...], bytes]] = {}
        self._agreed: set[str] = set()
        self._is_older = False  # the database, than what an agent has acks for
        self.corrected = 0  # events since the start

    def hear(self, node: str, beat: health_pb2.Heartbeat) -> None:
        """Takes in a heartbeat; one of an agent that states no set at all changes nothing."""
        if not beat.HasField("open"):
            return
        looked = {c.check: c.outcome in _LOOKED for c in beat.checks}
        known = self._nodes.get(node)
        if known is None or known.beat.boot_id != beat.boot_id:
            known = self._nodes[node] = _Node(beat, self._newest(), looked)
        else:
            known.beat, known.upto = beat, self._newest()
            known.looked = {**known.looked, **looked} if beat.partial else looked
        if beat.open.stated:
            known.stated = beat.open if beat.open.findings else health_pb2.OpenSet(digest=beat.open.digest)
        self._unseen[node] = None

    def states(self, node: str) -> bool:
        """Whether its agent stated an open set, or its digest, since the start."""
        return node in self._nodes

    def has_agreed(self, node: str) -> bool:
        """Whether its agent and the controller had the same open once since the start."""
        return node in self._agreed

    async def greet(self, hello: health_pb2.Hello) -> None:
        """Tells the policy, once, that an agent has acks for more of its boot than is stored."""
        if self._is_older or not hello.acked_seq:
            return
        stored = await self._reconciler.read(lambda c: history.newest_seq(c, hello.node, hello.boot_id))
        if hello.acked_seq > stored and not self._is_older:
            self._is_older = True
            await self._reconciler.post(AgentAhead(hello.node, hello.boot_id, hello.acked_seq, stored))

    async def settle(self, now_s: float) -> None:
        """Compares the heartbeats since the last call. Call it every second or so. Raises StoreError."""
        waiting, self._unseen = self._unseen, {}
        for node in waiting:
            if not await self._compare(node, self._nodes[node], now_s):
                self._unseen.setdefault(node, None)

    async def _compare(self, name: str, heard: _Node, now_s: float) -> bool:
        """False where it is to be compared again without a newer heartbeat."""
        state = self._reconciler.state
        node = state.nodes.get(name)
        if (
            node is not None
            and node.boot_id == heard.beat.boot_id
            and self._digest(name, state) == heard.beat.open.digest
        ):
            heard.differs_since_s, heard.corrected = None, ()
            self._agreed.add(name)
            return True
        if heard.differs_since_s is None:
            heard.differs_since_s = now_s
        settled = heard.beat.spooled_events == 0 and state.cursor >= heard.upto
        if not settled and now_s - heard.differs_since_s < IN_FLIGHT_S:
            return heard.beat.spooled_events > 0  # then the next heartbeat may have it
        if now_s - heard.done_s < AGAIN_S:
            return True
        heard.done_s = now_s
        if heard.stated is None or heard.stated.digest != heard.beat.open.digest:
            self._ask(name)
            return True
        await self._correct(name, heard, heard.stated)
        return False

    async def _correct(self, name: str, heard: _Node, stated: health_pb2.OpenSet) -> None:
        said = {_key(f): f for f in stated.findings[:MOST_FINDINGS] if _fits(f)}
        left_out = stated.left_out + len(stated.findings) - len(said)
        whole = StatedSet(
            heard.beat.boot_id,
            heard.beat.open.as_of_seq,
            tuple(_finding(key, f) for key, f in said.items()),
            heard.looked,
            left_out,
        )
        found = resync.differences(self._reconciler.state.nodes.get(name), whole)
        if not found or found == heard.corrected:
            return  # what is different is nothing that an event can change
        heard.corrected = found
        now_us = to_us(self._reconciler.now())
        events = [_event(c, whole, said.get((c.check, c.component, c.fault)), now_us + i) for i, c in enumerate(found)]
        counts = {str(kind): n for kind in _KINDS if (n := sum(c.kind is kind for c in found))}
        log.warning("an agent's open findings differ from ours", node=name, **counts)
        await self._reconciler.record(name, events)
        self.corrected += len(events)

    def _digest(self, name: str, state: FleetState) -> bytes:
        node = state.nodes[name]
        if not node.findings:
            return open_set.EMPTY
        known = self._known.get(name)
        if known is None or known[0] is not node.findings:
            known = self._known[name] = node.findings, resync.digest(node)
        return known[1]


def _fits(finding: health_pb2.Event) -> bool:
    longest = max(len(finding.check), len(finding.component), len(finding.fault))
    return longest <= LONGEST_NAME and finding.ByteSize() <= LARGEST_BYTES


def _key(finding: health_pb2.Event) -> resync.Key:
    return stored_text(finding.check), stored_text(finding.component), stored_text(finding.fault)


def _finding(key: resync.Key, message: health_pb2.Event) -> StatedFinding:
    return StatedFinding(*key, severity_of(message.severity), confidence_of(message.confidence))


def _event(found: Correction, stated: StatedSet, said: health_pb2.Event | None, now_us: int) -> health_pb2.Event:
    """The correction as the controller's event; a finding that the agent has open keeps its evidence and time."""
    event = health_pb2.Event()
    if said is not None and found.kind is not EventKind.CLEARED:
        event.CopyFrom(said)
    event.boot_id, event.seq = CONTROLLER_BOOT, now_us
    event.of_boot, event.as_of_seq = stated.boot_id, stated.as_of_seq
    event.kind, event.check, event.component, event.fault = (
        _KINDS[found.kind],
        found.check,
        found.component,
        found.fault,
    )
    if not 0 < event.at_unix_us <= now_us:
        event.at_unix_us = now_us
    if found.fault:
        event.severity, event.confidence = int(found.severity), int(found.confidence)  # type: ignore[assignment]
    event.evidence["resync"].text = found.why
    return event
