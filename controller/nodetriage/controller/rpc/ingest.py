"""One node's event batches on their way to the disk.

At most one batch of a node waits for its commit, and the next is read meanwhile; what comes after that stays in
HTTP/2's flow control and so in the node's spool. That is the fairness among nodes. A fault that a node sends ahead of
its backlog passes the node's own batch and all routine batches of others.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import grpc
import structlog

from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.admission import AdmissionSettings, admit_batch
from nodetriage.controller.rpc.event_bounds import KnownNames, sort
from nodetriage.controller.rpc.quota import Quota
from nodetriage.controller.store import mappers, poison
from nodetriage.controller.store.store import Store, StoreError
from nodetriage.service.crashpoint import passing
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2

OVER_DAY = "over the node's quota of [admission] mib_per_day_per_node"

log = structlog.get_logger(__name__)


class Ingest:
    """`send` takes the acks; `fail` ends the stream where a batch could not be stored. Owned by the event loop."""

    def __init__(
        self,
        node: str,
        store: Store,
        bounds: tuple[AdmissionSettings, KnownNames, Quota],
        send: Callable[[health_pb2.ControllerMessage], None],
        fail: Callable[[Refused], None],
    ) -> None:
        self._node, self._store, self._send, self._fail = node, store, send, fail
        self._limits, self._names, self._quota = bounds
        self._under_way: asyncio.Task[None] | None = None
        self._follows: tuple[str, int] | None = None  # what the next batch begins with if it passes nothing

    async def take(self, batch: health_pb2.EventBatch, now_us: int) -> None:
        """Returns when the next batch may be read. Raises Refused, StoreError."""
        admit_batch(batch, self._limits)
        grave = any(event.severity >= health_pb2.SEVERITY_MAJOR for event in batch.events)
        if grave and self._passes(batch):
            await self._record(batch, now_us, grave)
            return
        await self.settle()
        last = batch.events[-1]
        self._follows = last.boot_id, last.seq + 1
        self._under_way = asyncio.get_running_loop().create_task(self._record_or_fail(batch, now_us, grave))

    async def settle(self) -> None:
        """Waits until all that was taken is on the disk, and acked."""
        if self._under_way:
            await asyncio.shield(self._under_way)

    def close(self) -> None:
        """No ack is wanted any more. What is with the store already is stored all the same."""
        if self._under_way:
            self._under_way.cancel()

    def _passes(self, batch: health_pb2.EventBatch) -> bool:
        """A batch that follows the one before in number waits for it: a backlog is stored in its order."""
        waits = self._under_way and not self._under_way.done()
        return bool(waits) and (batch.events[0].boot_id, batch.events[0].seq) != self._follows

    async def _record_or_fail(self, batch: health_pb2.EventBatch, now_us: int, grave: bool) -> None:
        try:
            await self._record(batch, now_us, grave)
        except StoreError as error:
            self._fail(Refused(grpc.StatusCode.UNAVAILABLE, f"the store could not be used: {error}"))
        except Exception as error:
            log.exception("batch not stored", node=self._node)
            self._fail(Refused(grpc.StatusCode.INTERNAL, f"the batch was not stored: {type(error).__name__}"))

    async def _record(self, batch: health_pb2.EventBatch, now_us: int, grave: bool) -> None:
        # Crash points only where a fault is under way: a test does not want to interrupt the routine before it.
        if grave:
            passing("server.before_commit")
        ranges = mappers.ranges_of(batch.events)
        kept, aside = self._sorted(batch.events, now_us, grave)
        if kept:
            await self._store.record(self._node, kept, now_us, urgent=grave)
        if aside:
            await self._store.set_aside(aside)
        if grave:
            passing("server.before_ack")
        self._send(health_pb2.ControllerMessage(ack=health_pb2.Ack(ranges=wire(ranges))))

    def _sorted(
        self, events: Sequence[health_pb2.Event], now_us: int, grave: bool
    ) -> tuple[list[health_pb2.Event], list[poison.Poison]]:
        """What is stored, and what is set aside: events that are too long, or too many for the day's quota."""
        kept, over = sort(self._node, events, self._names)
        if kept and not self._quota.may_store(sum(event.ByteSize() for event in kept), grave, time.monotonic()):
            over += [(event, OVER_DAY) for event in kept]
            kept = []
        return kept, [poison.of(self._node, event, now_us, why) for event, why in over]


def wire(ranges: Iterable[SeqRange]) -> list[health_pb2.SeqRange]:
    return [health_pb2.SeqRange(boot_id=r.boot_id, first_seq=r.first, last_seq=r.last) for r in ranges]
