"""What an agent sends after its hello: each message within its bounds and its node's quota, and where it goes."""

import asyncio
import time
from collections.abc import Callable, Collection

import grpc

from nodetriage.controller.auth.identity import Context
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.event_bounds import KnownNames, bound_open_set, heartbeat_over, result_over
from nodetriage.controller.rpc.ingest import Ingest
from nodetriage.controller.rpc.last_seen import LastSeen
from nodetriage.controller.rpc.messages import next_message
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.rpc.quota import BEAT_COUNTS_AS, Quotas
from nodetriage.controller.rpc.session import Session
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2


class AgentMessages:
    """What all streams share: the store, the names that are known, and each node's quota. The event loop owns it."""

    def __init__(
        self, store: Store, last_seen: LastSeen, limits: AdmissionSettings, catalogue: Collection[str]
    ) -> None:
        self._store, self._last_seen, self._limits = store, last_seen, limits
        self._names, self._quotas = KnownNames(catalogue), Quotas(limits)
        self.on_heartbeat: Callable[[str, health_pb2.Heartbeat], None] = lambda node, beat: None

    async def take(self, session: Session, context: Context) -> None:
        """Until the agent closes its side. Raises Refused, StoreError."""
        limits, quota = self._limits, self._quotas.of(session.node, time.monotonic())
        ingest = Ingest(session.node, self._store, (limits, self._names, quota), session.send, session.end)
        try:
            while (received := await next_message(context, limits.max_message_bytes)) is not None:
                now_s = time.monotonic()
                wait_s = quota.read(counts_as(received.message), received.size, now_s)
                try:
                    await self._take_one(session, ingest, received.message, now_s)
                finally:
                    if wait_s:  # also before a refusal: who is sent away comes back, and sends the same again
                        await asyncio.sleep(wait_s)
            await ingest.settle()
        finally:
            ingest.close()

    async def _take_one(self, session: Session, ingest: Ingest, message: health_pb2.AgentMessage, now_s: float) -> None:
        body, now_us = message.WhichOneof("body"), unix_us()
        if body == "heartbeat":
            _within(heartbeat_over(message.heartbeat))
            bound_open_set(session.node, message.heartbeat.open, self._names)
            self._last_seen.hear(session.node, now_s, now_us, message.heartbeat)
            self.on_heartbeat(session.node, message.heartbeat)
            return
        self._last_seen.hear(session.node, now_s, now_us)
        if body == "events" and message.events.events:
            await ingest.take(message.events, now_us)
        elif body == "result":
            _within(result_over(message.result))
            session.answered(message.result)
        elif body == "hello":
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "a second hello on one stream")
        # A newer agent may send any other body; this controller ignores it.


def counts_as(message: health_pb2.AgentMessage) -> int:
    """Events, for the quota."""
    return BEAT_COUNTS_AS if message.HasField("heartbeat") else max(1, len(message.events.events))


def unix_us() -> int:
    return time.time_ns() // 1000


def _within(over: str) -> None:
    if over:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, over)
