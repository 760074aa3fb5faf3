"""When each node's agent last spoke, and what its heartbeats reported. In memory; a restart remembers the names."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from nodetriage.controller.rpc.event_bounds import MOST_CHECKS, MOST_PORTS
from nodetriage.controller.store.mappers import Seen
from nodetriage.v1 import health_pb2

NEVER_MS = 0xFFFFFFFF
SAVE_EVERY_S = 30.0  # for a node whose ages alone changed: ten thousand rows a heartbeat are too many

IDLE_MISSED = 2.5  # intervals without a word of a node without a job; a stream loses nothing, so two are enough


@dataclass(slots=True)
class _Node:
    """The sum of a stream's heartbeats. `checks`: outcome, and when the check ran (None: never)."""

    node: str
    at_s: float = 0.0
    at_us: int = 0
    last: health_pb2.Heartbeat | None = None
    last_us: int | None = None
    checks: dict[str, tuple[health_pb2.Outcome, int | None]] = field(default_factory=dict)
    ports: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # rx bytes, tx bytes, when read
    saved_s: float = float("-inf")
    next_within_s: float = 0.0  # as the agent announced; 0: it did not
    changed: bool = False  # since the last save: another boot, check or outcome

    def take(self, beat: health_pb2.Heartbeat, now_us: int) -> None:
        if not beat.partial:
            self.checks.clear()
            self.ports.clear()
        for check in beat.checks:
            ran_us = None if check.age_ms == NEVER_MS else now_us - check.age_ms * 1000
            known = self.checks.get(check.check)
            if known is None and len(self.checks) >= MOST_CHECKS:
                continue
            self.changed = self.changed or known is None or known[0] != check.outcome
            self.checks[check.check] = check.outcome, ran_us
        for port in beat.ports:
            if port.port not in self.ports and len(self.ports) >= MOST_PORTS:
                continue
            self.ports[port.port] = port.rx_bytes, port.tx_bytes, now_us - port.age_ms * 1000
        # Of the message itself only this is needed later: checks and ports are above, and the open set may be large.
        self.last = health_pb2.Heartbeat(
            at_unix_us=beat.at_unix_us,
            boot_id=beat.boot_id,
            abandoned_workers=beat.abandoned_workers,
            spooled_events=beat.spooled_events,
        )
        self.last_us = now_us
        self.next_within_s = beat.next_within_ms / 1000

    def heard(self) -> Seen:
        if self.last is None or self.last_us is None:
            return Seen(self.node, self.at_s, self.at_us)
        whole = health_pb2.Heartbeat()
        whole.CopyFrom(self.last)
        for check, (outcome, ran_us) in self.checks.items():
            age_ms = NEVER_MS if ran_us is None else _age_ms(self.last_us, ran_us)
            whole.checks.add(check=check, outcome=outcome, age_ms=age_ms)
        for port, (rx_bytes, tx_bytes, read_us) in self.ports.items():
            whole.ports.add(port=port, rx_bytes=rx_bytes, tx_bytes=tx_bytes, age_ms=_age_ms(self.last_us, read_us))
        return Seen(self.node, self.at_s, self.at_us, whole, self.last_us)


class LastSeen:
    """One entry a node; the event loop owns it. The age of a check grows also while no heartbeat arrives."""

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s  # the start: no agent spoke before
        self._nodes: dict[str, _Node] = {}
        self._unsaved: set[str] = set()

    def hear(self, node: str, now_s: float, now_us: int, heartbeat: health_pb2.Heartbeat | None = None) -> None:
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = _Node(node)
        known.at_s, known.at_us = now_s, now_us
        if heartbeat is not None:
            known.take(heartbeat, now_us)
        self._unsaved.add(node)

    def remember(self, nodes: Iterable[str], at_s: float) -> None:
        """Nodes that reported before the start, as if they had done so last at `at_s`."""
        for node in nodes:
            self._nodes.setdefault(node, _Node(node, at_s))

    def nodes(self) -> Collection[str]:
        """Those that reported, ever."""
        return self._nodes.keys()

    def of(self, node: str) -> Seen | None:
        known = self._nodes.get(node)
        return known.heard() if known else None

    def silent(self, now_s: float, longer_than_s: float, idle_every_s: float = 0.0) -> Iterator[str]:
        """Nodes whose agent spoke once and then not for `longer_than_s`.

        One that announced a longer interval has IDLE_MISSED of them, and the interval is at most `idle_every_s`.
        """
        for node in self._nodes.values():
            announced_s = min(node.next_within_s, idle_every_s)
            if now_s - node.at_s > max(longer_than_s, IDLE_MISSED * announced_s):
                yield node.node

    def take_unsaved(self, now_s: float, limit: int | None = None) -> list[Seen]:
        """The nodes that spoke since the last call: those with news at once, the others every SAVE_EVERY_S.

        At most `limit`: after a restart all nodes have news, and an event must not wait for all their rows.
        """
        waiting = map(self._nodes.__getitem__, self._unsaved)
        due = list(islice((k for k in waiting if k.changed or now_s - k.saved_s >= SAVE_EVERY_S), limit))
        for known in due:
            known.saved_s, known.changed = now_s, False
            self._unsaved.discard(known.node)
        return [known.heard() for known in due]


def _age_ms(now_us: int, then_us: int) -> int:
    return min(max(0, (now_us - then_us) // 1000), NEVER_MS - 1)
