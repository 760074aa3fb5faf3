"""Keeps in the database who should report and who does, so that a restart and another controller know it too."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog
from sqlalchemy import Connection

from nodetriage.controller.policy import drain_limits
from nodetriage.controller.policy.agents import coverage
from nodetriage.controller.policy.agents.coverage import Known, Presence, World
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.state import FleetState, NodeState
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.store import known_nodes
from nodetriage.controller.store.known_nodes import ControllerStatus
from nodetriage.controller.store.store import StoreError

T = TypeVar("T")
Views = tuple[Mapping[str, NodeView], datetime | None]  # the scheduler's nodes, and when they were read
log = structlog.get_logger("presence")

SURVEY_EVERY_S = 5.0
SOON_S = 0.5  # after an agent came that was not known to report
MOST_REFUSED = 20_000
HOUR = timedelta(hours=1)


class Reconciling(Protocol):
    """What this needs of the reconciler."""

    @property
    def state(self) -> FleetState: ...

    @property
    def rules(self) -> Policy: ...

    def now(self) -> datetime: ...

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def write(self, work: Callable[[Connection], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Agents:
    """Who spoke since the start, and who of them is silent now."""

    spoken: Collection[str]
    silent: Collection[str]


class Presences:
    """Belongs to the event loop: `load` once, then `run`. `expected` are nodes that the settings name."""

    def __init__(
        self,
        reconciler: Reconciling,
        views: Callable[[], Views],
        agents: Callable[[], Agents],
        version: str,
        expected: Iterable[str] = (),
    ) -> None:
        self._reconciler, self._views, self._agents, self._version = reconciler, views, agents, version
        self._expected = frozenset(expected)
        self._refused: dict[str, str] = {}
        self._soon = asyncio.Event()
        self.known: dict[str, Known] = {}

    async def load(self) -> Agents:
        """What was known before the start: nodes whose agents reported then, and those of them that were silent."""
        self.known = await self._reconciler.read(known_nodes.load)
        ever = await self._reconciler.read(known_nodes.ever_heard)
        gone = {n for n, k in self.known.items() if k.presence is Presence.SILENT}
        return Agents(ever, gone | {n for n in ever if n not in self.known})

    def refuse(self, node: str, why: str) -> None:
        """An agent that proved whose node it speaks for is sent away."""
        if node in self._refused or len(self._refused) < MOST_REFUSED:
            self._refused[node] = why[:300]
            self._soon.set()

    def admit(self, node: str) -> None:
        """Its agent is connected."""
        self._refused.pop(node, None)
        known = self.known.get(node)
        if known is None or known.presence is not Presence.HEARD:
            self._soon.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.survey()
            except StoreError as error:
                log.error("who reports is not stored", why=str(error))
            try:
                async with asyncio.timeout(SURVEY_EVERY_S):
                    await self._soon.wait()
                await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass

    async def survey(self) -> None:
        """Once: stores what changed, and what the controller says of itself. Raises StoreError."""
        self._soon.clear()
        state, now, agents = self._reconciler.state, self._reconciler.now(), self._agents()
        views, read_at = self._views()
        retired = {n.node for n in state.nodes.values() if n.state is NodeState.RETIRED}
        world = World(views, self._expected, agents.spoken, agents.silent, dict(self._refused), retired)
        known = coverage.survey(self.known, world, now)
        changed = [one for name, one in known.items() if self.known.get(name) is not one]
        gone = [name for name in self.known if name not in known]
        said = status(state, self._reconciler.rules, now, known)
        said = replace(said, version=self._version, scheduler_nodes=len(views), scheduler_read_at=read_at)

        def write(connection: Connection) -> None:
            known_nodes.save(connection, changed, gone)
            known_nodes.save_status(connection, said, now)

        await self._reconciler.write(write)
        self.known = known


def status(state: FleetState, policy: Policy, now: datetime, known: Mapping[str, Known]) -> ControllerStatus:
    """The head of `nodetriagectl nodes`. Pure."""
    limits, size = policy.drain_limits, state.sizes.get("", len(state.nodes))
    pooled = {n.node for n in repair.pool(state.nodes.values(), now, limits, size)}
    return ControllerStatus(
        mode=str(policy.mode),
        breaker_open=state.breaker.is_open,
        breaker_why=state.breaker.why,
        paused_until=state.pause.until if state.pause is not None else None,
        drains_last_hour=len({a.node for a in state.admitted if now - a.at < HOUR}),
        drains_per_hour=limits.max_drains_per_hour,
        nodes_out=sum(repair.is_out(n) and n.node not in pooled for n in state.nodes.values()),
        nodes_out_limit=limits.max_nodes,
        drains_queued=len(drain_limits.held(state)),
        fleet_incidents=len(state.fleet_incidents),
        in_maintenance=sum(n.maintenance is not None for n in state.nodes.values()),
        presences={str(presence): n for presence, n in coverage.counts(known).items()},
    )
