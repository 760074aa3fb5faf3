"""Looks at the scheduler: all nodes at the start, soon after each action, and from time to time; jobs when they count.

The reconciler gets what it reads. Nodes that the scheduler itself lost become events in the history like an agent's.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import structlog

from nodetriage.controller.policy import liveness
from nodetriage.controller.policy.state import Event, EventKind, FleetState, NodeEvent, SchedulerFailed, SchedulerSeen
from nodetriage.controller.scheduler import (
    JobView,
    NodeView,
    Scheduler,
    SchedulerError,
    SchedulerRefused,
    with_maintenance,
)
from nodetriage.controller.store import job_hits, state_store
from nodetriage.controller.store.store import StoreError
from nodetriage.v1 import health_pb2

log = structlog.get_logger("reconciler")

Places = Mapping[str, tuple[str, ...]]
MOST_WAITING = 500  # nodes whose jobs are to be read; a storm of events must not become one of squeue calls
OUTAGE_SCAN_S = 5.0  # between readings while the scheduler does not answer
FIRST_LOOK_S = 5.0  # at the start: no event waits longer for the first reading of all nodes
COMPARED_WITHIN_S = 2.0  # a new node with the scheduler; then its drain is put off
TOPOLOGY_EVERY = 60  # readings of all nodes
_SEVERITY = {liveness.NODE_LOST: health_pb2.SEVERITY_CRITICAL, liveness.AGENT_SILENT: health_pb2.SEVERITY_WARNING}


class Reconciling(Protocol):
    """What the poller needs of the reconciler."""

    @property
    def state(self) -> FleetState: ...

    def now(self) -> datetime: ...

    async def post(self, event: Event) -> Any: ...

    async def write(self, work: Callable[[Any], Any]) -> Any: ...

    async def record(self, node: str, events: list[health_pb2.Event]) -> None: ...


class Poller:
    """Run `run()` and `run_jobs()` as tasks. `places` is what the site's own file says that nodes share."""

    def __init__(self, mind: Reconciling, scheduler: Scheduler, tick_s: float, scan_s: float, places: Places) -> None:
        self._reconciler, self._scheduler, self._tick_s, self._scan_s = mind, scheduler, tick_s, scan_s
        self._places = places
        self._compared: frozenset[str] = frozenset()  # nodes that were known when the last reading was taken in
        self._wanted, self._urgent = asyncio.Event(), asyncio.Event()
        self._readings, self._is_reading = 0, False  # how many ended
        self._done_reading = asyncio.Event()
        self._nodes: dict[str, int] = {}  # whose jobs are to be read, each with the event that asked for it
        self._asked = asyncio.Event()
        self.seen: tuple[Mapping[str, NodeView], datetime | None] = {}, None  # the last reading, and when it began
        self._began_s: float | None = None
        self.began_at = mind.now()  # what is known since then is fresh
        self.vouched: Callable[[str], bool] = lambda node: True  # its agent confirms what was known before the start
        self.first_look = asyncio.Event()  # all nodes were read at least once, and the reconciler has them

    def has_looked(self) -> bool:
        """Whether events may be taken: after Slurm has shown our drains, or is late with that."""
        now_s = asyncio.get_running_loop().time()
        self._began_s = now_s if self._began_s is None else self._began_s
        return not self._scheduler.acts or self.first_look.is_set() or now_s - self._began_s >= FIRST_LOOK_S

    async def compare(self, node: str) -> bool:
        """Whether the policy has the scheduler's view of this node; reads the scheduler at once where it has not.

        A node that reported for the first time after the last reading may be in maintenance, or nobody's.
        """
        if node not in self._compared:
            self._urgent.set()
            await self.looked(COMPARED_WITHIN_S)
        return node in self._compared

    def wake(self) -> None:
        self._wanted.set()

    async def looked(self, within_s: float) -> None:
        """Returns after a reading that began after this call, or when the time is over."""
        last = self._readings + (2 if self._is_reading else 1)  # the one under way began before
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._readings < last:
                    self._wanted.set()
                    await self._done_reading.wait()

    def note(self, events: list[NodeEvent]) -> None:
        """A grave finding: which jobs were on the node is known only now. A new node: the scheduler is read soon."""
        for event in events:
            if event.node not in self._compared:
                self._wanted.set()
            raised = event.kind is EventKind.RAISED and event.severity >= health_pb2.SEVERITY_MAJOR
            if raised and event.node not in self._nodes and len(self._nodes) < MOST_WAITING:
                self._nodes[event.node] = event.id
                self._asked.set()

    async def run(self) -> None:
        shared: Places | None = None
        wait_s = self._scan_s
        for work in range(1 << 62):
            self._wanted.clear()
            self._urgent.clear()
            self._is_reading, read_at = True, self._reconciler.now()
            try:
                if shared is None or work % TOPOLOGY_EVERY == 0:
                    shared = await self._shared() or shared
                nodes, reserved = await self._scheduler.nodes(), await self._scheduler.reservations()
                seen = SchedulerSeen(read_at, with_maintenance(nodes, reserved), reserved, shared or self._places)
                known = frozenset(self._reconciler.state.nodes)
                await self._reconciler.post(seen)
                self._compared = known
                self.seen = seen.nodes, read_at
                self.first_look.set()
                await self._tell_lost(seen)
                wait_s = self._scan_s
            except SchedulerError as error:
                log.warning("scheduler not read", why=str(error))
                wait_s = min(self._scan_s, OUTAGE_SCAN_S)
                if not isinstance(error, SchedulerRefused):
                    await self._reconciler.post(SchedulerFailed(str(error)[:300]))
            except StoreError as error:
                log.error("lost nodes not stored", why=str(error))
            self._readings, self._is_reading = self._readings + 1, False
            self._done_reading.set()
            self._done_reading = asyncio.Event()
            await _set_within(self._urgent, self._tick_s)  # however many actions: at most one reading a tick
            await _set_within(self._wanted, wait_s)

    async def _shared(self) -> Places | None:
        """None where the scheduler's topology cannot be read: that must not keep its nodes from being read."""
        try:
            return merged(await self._scheduler.topology(), self._places)
        except SchedulerError as error:
            log.warning("topology not read", why=str(error))
            return None

    async def _tell_lost(self, seen: SchedulerSeen) -> None:
        now_us = state_store.to_us(self._reconciler.now())
        for found in liveness.lost(self._reconciler.state, seen.nodes):
            raised = found.kind == "raised"
            event = health_pb2.Event(
                boot_id=liveness.CONTROLLER_BOOT,
                seq=liveness.next_seq(self._reconciler.state.nodes[found.node], now_us),
                at_unix_us=now_us,
                kind=health_pb2.EVENT_KIND_RAISED if raised else health_pb2.EVENT_KIND_CLEARED,
                check=liveness.CHECK,
                component=liveness.PART,
                fault=found.fault,
                severity=_SEVERITY[found.fault],
                evidence={k: health_pb2.Value(text=v) for k, v in found.evidence.items() if v},
            )
            now_us += 1
            await self._reconciler.record(found.node, [event])

    async def run_jobs(self) -> None:
        """Keeps the facts of the jobs on a node at the time of a grave event, one node after the other."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._nodes:
                node, event = self._nodes.popitem()
                try:
                    await self._keep_jobs(node, event)
                except (SchedulerError, StoreError) as error:
                    log.warning("jobs of a node not kept", node=node, cursor=event, why=str(error))

    async def _keep_jobs(self, node: str, event: int) -> None:
        jobs: tuple[JobView, ...] = await self._scheduler.jobs_on(node)
        if jobs:
            now = self._reconciler.now()
            await self._reconciler.write(lambda c: job_hits.keep_jobs(c, f"event-{event}", node, jobs, now))


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set, or when the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def merged(*sources: Places) -> dict[str, tuple[str, ...]]:
    """Node -> all that any source says it shares, each once."""
    found: dict[str, tuple[str, ...]] = {}
    for source in sources:
        for node, shared in source.items():
            found[node] = tuple(dict.fromkeys((*found.get(node, ()), *shared)))
    return found
