"""Watches whether agents report, and whether what they have open is what the controller has."""

import asyncio
from math import inf
from time import monotonic

import structlog

from nodetriage.controller.config import ControllerSettings
from nodetriage.controller.engine.presence import Agents, Presences
from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.engine.resync import Resync
from nodetriage.controller.rpc.server import NodeHealthServer
from nodetriage.controller.store.store import Store, StoreError
from nodetriage.service.version import VERSION
from nodetriage.v1 import health_pb2

_log = structlog.get_logger("controller")

AGENTS_OWN_HEARTBEAT_S = 5.0  # their default, where the controller sets none
RECONNECT_S = 30.0  # after a start, before an agent that does not come can be silent: their longest back-off
VOUCH_S = 60.0  # after a start: so long does a drain wait for its node's agent to say what is open
STATES_WITHIN_S = 2.0  # after its hello, which a heartbeat follows at once


class AgentWatch:
    """Hears what the server hears. Belongs to the event loop; run `run()` as a task."""

    def __init__(
        self, settings: ControllerSettings, store: Store, reconciler: Reconciler, server: NodeHealthServer
    ) -> None:
        own = settings.controller
        self._reconciler, self._last_seen = reconciler, server.last_seen
        self._silent_after_s = own.missed_heartbeats * (own.heartbeat_every_s or AGENTS_OWN_HEARTBEAT_S)  # with a job
        self._idle_every_s = own.idle_heartbeat_every_s
        self.resync = Resync(reconciler, server.ask_open_set, lambda: store.newest_id)
        self.presences = Presences(
            reconciler,
            lambda: reconciler.poller.seen,
            lambda: Agents(self._last_seen.nodes(), self._silent()),
            VERSION,
            settings.expected_nodes,
        )
        server.messages.on_heartbeat, server.on_refused = self.resync.hear, self.presences.refuse
        server.on_hello = self._greet
        self._greeted_s: dict[str, float] = {}
        self._began_s = monotonic()
        reconciler.poller.vouched = self.vouched

    async def run(self) -> None:
        """Begins with what was known before the start: agents that were silent are so until they report."""
        remembered = await self.presences.load()
        self._last_seen.remember(remembered.silent, -inf)
        self._last_seen.remember(remembered.spoken, monotonic() + RECONNECT_S)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.presences.run())
            group.create_task(self._watch_silence())
            group.create_task(self._settle_open_sets())

    def _silent(self) -> set[str]:
        return set(self._last_seen.silent(monotonic(), self._silent_after_s, self._idle_every_s))

    def vouched(self, node: str) -> bool:
        """Whether what was known of the node before the start still counts: the database may be an old backup.

        Its agent has agreed, or it is one that states no open set; or it had the time to come and did not.
        """
        now_s = monotonic()
        if self.resync.has_agreed(node) or now_s - self._began_s >= VOUCH_S:
            return True
        came_s = self._greeted_s.get(node, inf)
        return not self.resync.states(node) and now_s - came_s >= STATES_WITHIN_S

    async def _greet(self, hello: health_pb2.Hello) -> None:
        self._greeted_s[hello.node] = monotonic()
        self.presences.admit(hello.node)
        await self.resync.greet(hello)

    async def _watch_silence(self) -> None:
        """Logs which nodes fell silent and which came back: one line each second at most, however many they are."""
        unknown: set[str] = set()
        while True:
            await asyncio.sleep(1.0)
            nodes, silent = self._reconciler.state.nodes, self._silent()
            before = {n.node for n in nodes.values() if n.silent_since is not None}
            unknown, was_unknown = silent - nodes.keys(), unknown  # to the policy: they sent no event
            before |= was_unknown
            if fell := sorted(silent - before):
                _log.warning("nodes silent", count=len(fell), nodes=fell[:20], longer_than_s=self._silent_after_s)
            if back := sorted(before - silent):
                _log.info("nodes heard again", count=len(back), nodes=back[:20])
            if fell or back:
                await self._reconciler.contact(fell, back)
            await self._reconciler.checks_heard(self._last_seen.of)

    async def _settle_open_sets(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            try:
                await self.resync.settle(monotonic())
            except StoreError as error:
                _log.error("differences from agents' open findings not stored", why=str(error))
