"""Metrics of the controller itself for Prometheus: `[metrics] listen`, on this machine only.

A thread answers scrapes, and asks the event loop for the values. So the scrapes of a controller that stands still fail,
instead of repeating old values.
"""

import asyncio
import contextlib
from collections import Counter as Tally
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, func, or_, select

from nodetriage.controller.policy import drain_limits
from nodetriage.controller.policy.agents.coverage import Presence
from nodetriage.controller.policy.state import FleetState, NodeState
from nodetriage.controller.store import schema
from nodetriage.controller.store.store import Store
from nodetriage.service.address import host_of
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2

_log = structlog.get_logger(__name__)

SCRAPE_LIMIT_S = 5.0  # Prometheus itself waits 10 s by default
DAY_US = 86_400_000_000
ACK_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class Facts:
    """The controller at one moment. `actions` counts those of the last day, and open ones, by (kind, status)."""

    version: str
    connected: int
    presences: Mapping[Presence, int] = field(default_factory=dict)  # nodes by whether their agent reports
    unlisted: int = 0  # agents that report from nodes that the scheduler does not list
    refused: int = 0  # peers refused since the start
    set_aside: int = 0  # events that were acked and not stored as events, since the start
    broken_invariants: int = 0  # of the policy, since the start
    state: FleetState = field(default_factory=FleetState)
    held_s: float = 0.0  # the oldest drain that waits
    maintenance_s: float = 0.0  # the longest
    certificates_s: Mapping[str, float] = field(default_factory=dict)  # what it is of -> until it ends
    actions: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Meters:
    """Counters since the start. Safe from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "nodetriage_events_stored", "Events on disk and acknowledged since the start", registry=registry
        )
        self._ack = Histogram(
            "nodetriage_ack_seconds",
            "From a batch of events taken in to its commit, after which it is acknowledged",
            buckets=ACK_BUCKETS_S,
            registry=registry,
        )

    def stored(self, events: int, took_s: float) -> None:
        self._events.inc(events)
        self._ack.observe(took_s)


class MeteredStore(Store):
    """A store that measures how long each batch takes."""

    def __init__(self, engine: Engine, meters: Meters) -> None:
        super().__init__(engine)
        self._meters = meters

    async def record(
        self, node: str, batch: Sequence[health_pb2.Event], received_us: int, *, urgent: bool = False
    ) -> list[SeqRange]:
        began_s = monotonic()
        ranges = await super().record(node, batch, received_us, urgent=urgent)
        self._meters.stored(len(batch), monotonic() - began_s)
        return ranges


class Scraped(Collector):
    """Turns facts into metrics at each scrape."""

    def __init__(self, facts: Callable[[], Facts]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        yield from families(self._facts())

    def describe(self) -> Iterator[Metric]:
        return families(Facts("", 0))


def families(facts: Facts) -> Iterator[Metric]:
    """All metrics but those of `Meters`."""
    state = facts.state
    yield _labelled("nodetriage_build_info", "The version that runs", "version", {facts.version: 1})
    yield GaugeMetricFamily("nodetriage_agents_connected", "Agents that have a stream now", facts.connected)
    yield from _presences(facts)
    yield CounterMetricFamily("nodetriage_peers_refused", "Peers refused since the start", facts.refused)
    text = "Events set aside since the start: acknowledged, and kept in the table `poison` alone"
    yield CounterMetricFamily("nodetriage_events_set_aside", text, facts.set_aside)
    text = "Invariants of the policy that a step broke since the start: report them"
    yield CounterMetricFamily("nodetriage_policy_invariants_broken", text, facts.broken_invariants)
    states = Tally({str(name): 0 for name in NodeState})
    states.update(str(node.state) for node in state.nodes.values())
    yield _labelled("nodetriage_nodes", "Nodes by their state", "state", states)
    queued = len(drain_limits.held(state))
    yield GaugeMetricFamily("nodetriage_drains_queued", "Drains that wait for the drain limits or the breaker", queued)
    yield from _waits(facts)
    yield GaugeMetricFamily(
        "nodetriage_breaker_open",
        "1 while the breaker is open and stops drains and requeues",
        int(state.breaker.is_open),
    )
    actions = GaugeMetricFamily(
        "nodetriage_actions",
        "Actions decided within the last 24 hours or still open, by what became of them",
        labels=("kind", "status"),
    )
    for labels, count in sorted(facts.actions.items()):
        actions.add_metric(labels, count)
    yield actions


def _presences(facts: Facts) -> Iterator[Metric]:
    silent = facts.presences.get(Presence.SILENT, 0)
    yield GaugeMetricFamily("nodetriage_agents_silent", "Agents that connected once and are silent now", silent)
    presences = {str(presence): facts.presences.get(presence, 0) for presence in Presence}
    text = "Nodes that Slurm, an agent or the settings name, by whether their agent reports"
    yield _labelled("nodetriage_nodes_known", text, "presence", presences)
    text = "Agents that report from nodes that the scheduler does not list"
    yield GaugeMetricFamily("nodetriage_nodes_unlisted", text, facts.unlisted)


def _waits(facts: Facts) -> Iterator[Metric]:
    state = facts.state
    yield GaugeMetricFamily("nodetriage_drains_held_seconds", "How long the oldest of them waits", facts.held_s)
    text = "Fleet incidents that are open"
    yield GaugeMetricFamily("nodetriage_fleet_incidents_open", text, len(state.fleet_incidents))
    working = [n.maintenance for n in state.nodes.values() if n.maintenance is not None]
    yield GaugeMetricFamily("nodetriage_nodes_in_maintenance", "Nodes that someone works on", len(working))
    text = "How long the longest maintenance lasts"
    yield GaugeMetricFamily("nodetriage_maintenance_seconds", text, facts.maintenance_s)
    text = "Until the first certificate that this controller uses ends; without TLS there is no value"
    ends = GaugeMetricFamily("nodetriage_certificate_seconds", text, labels=("of",))
    for of, left_s in facts.certificates_s.items():
        ends.add_metric((of,), left_s)
    yield ends


def waits_s(state: FleetState, now: datetime) -> tuple[float, float]:
    """How long the oldest drain that waits has waited, and how long the longest maintenance lasts, in seconds."""
    held = [now - n.drain.wanted_at for n in drain_limits.held(state) if n.drain is not None]
    working = [now - n.maintenance.since for n in state.nodes.values() if n.maintenance is not None]
    longest = (max(spans, default=timedelta()).total_seconds() for spans in (held, working))
    held_s, maintenance_s = (max(0.0, seconds) for seconds in longest)
    return held_s, maintenance_s


def _labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


def count_actions(connection: Connection, now_us: int) -> dict[tuple[str, str], int]:
    """By kind, and by outcome where they have one, else by status (pending, started, shadow).

    Counts what was decided within the last day and what is still open: both by an index, however long the history is.
    """
    c = schema.actions.c
    wanted = or_(c.decided_us >= now_us - DAY_US, c.status.in_(("pending", "started")))
    grouped = (c.kind, c.status, c.outcome)
    rows = connection.execute(select(*grouped, func.count()).where(wanted).group_by(*grouped))
    counts: Tally[tuple[str, str]] = Tally()
    for kind, status, outcome, count in rows:
        counts[(kind, outcome or status)] += count
    return counts


def asking(
    loop: asyncio.AbstractEventLoop, facts: Callable[[], Coroutine[Any, Any, Facts]], limit_s: float = SCRAPE_LIMIT_S
) -> Callable[[], Facts]:
    """A function by which another thread asks the loop. It raises TimeoutError where the loop does not answer."""

    def ask() -> Facts:
        asked = asyncio.run_coroutine_threadsafe(facts(), loop)
        try:
            return asked.result(limit_s)
        except TimeoutError:
            asked.cancel()
            raise

    return ask


def _at_its_path(app: Any) -> Callable[[Mapping[str, Any], Any], Iterable[bytes]]:
    """The library's WSGI application at /metrics alone: it would answer at every path."""

    def answer(environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            answered: Iterable[bytes] = app(environ, start_response)
            return answered
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"expected /metrics\n"]

    return answer


@contextlib.asynccontextmanager
async def serving(registry: CollectorRegistry, listen: str, facts: Callable[[], Coroutine[Any, Any, Facts]]) -> Any:
    """Answers scrapes while the block runs; gives the port (0: not listening).

    A port that is taken is an error in the log alone: the controller protects the fleet without figures too.
    """
    registry.register(Scraped(asking(asyncio.get_running_loop(), facts)))
    ProcessCollector(registry=registry)
    try:
        server, _ = start_http_server(int(listen.rpartition(":")[2]), host_of(listen), registry)
    except OSError as error:
        _log.error("metrics are not served", listen=listen, why=error.strerror)
        yield 0
        return
    server.set_app(_at_its_path(server.get_app()))
    _log.info("metrics are served", listen=listen, port=server.server_port)
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
