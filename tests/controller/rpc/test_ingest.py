"""One node's batches: one at a time, in order, and a fault ahead of its backlog passes them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from fleet_client import acked, event

from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.admission import AdmissionSettings
from nodetriage.controller.rpc.event_bounds import KnownNames
from nodetriage.controller.rpc.ingest import Ingest
from nodetriage.controller.rpc.quota import Quota
from nodetriage.controller.store.mappers import ranges_of
from nodetriage.controller.store.store import StoreError
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2 as pb


class GatedStore:
    """Keeps each batch waiting until `let_through` names its first number."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []
        self._gates: dict[int, asyncio.Future[None]] = {}

    async def record(self, node: str, batch: Sequence[pb.Event], at_us: int, *, urgent: bool) -> list[SeqRange]:
        self.asked.append((batch[0].seq, urgent))
        await self._gates.setdefault(batch[0].seq, asyncio.get_running_loop().create_future())
        return ranges_of(batch)

    def let_through(self, seq: int, error: Exception | None = None) -> None:
        gate = self._gates.setdefault(seq, asyncio.get_running_loop().create_future())
        if error:
            gate.set_exception(error)
        else:
            gate.set_result(None)


class Scene:
    """An intake on a gated store, and what it said."""

    def __init__(self) -> None:
        self.store = GatedStore()
        self.acks: list[int] = []
        self.failures: list[Refused] = []
        store: Any = self.store
        limits = AdmissionSettings()
        bounds = (limits, KnownNames(), Quota(limits, 0.0))
        self.ingest = Ingest("n1", store, bounds, self._heard, self.failures.append)

    def _heard(self, message: pb.ControllerMessage) -> None:
        self.acks += [first for _, first, _ in acked(message)]

    def send(self, *seqs: int, grave: bool = False) -> "asyncio.Task[None]":
        severity = pb.SEVERITY_CRITICAL if grave else pb.SEVERITY_INFO
        batch = pb.EventBatch(events=[event(seq, severity=severity) for seq in seqs])
        return asyncio.ensure_future(self.ingest.take(batch, 1))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        scene = Scene()
        try:
            await body(scene)
        finally:
            scene.ingest.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_next_message_is_read_while_a_batch_waits_but_no_second_batch_is_stored() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1, 2)
        second = scene.send(3, 4)
        await turns()
        assert not second.done()
        assert scene.store.asked == [(1, False)]
        scene.store.let_through(1)
        await second
        await turns()
        assert scene.store.asked == [(1, False), (3, False)]
        assert scene.acks == [1]

    run(body)


def test_a_fault_ahead_of_the_backlog_passes_the_batch_that_waits() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1, 2)
        fault = scene.send(900, grave=True)
        await turns()
        assert scene.store.asked == [(1, False), (900, True)]
        scene.store.let_through(900)
        await fault
        assert scene.acks == [900]
        scene.store.let_through(1)
        await scene.ingest.settle()
        assert scene.acks == [900, 1]

    run(body)


def test_a_fault_within_the_backlog_keeps_its_place() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1, 2)
        fault = scene.send(3, grave=True)
        await turns()
        assert scene.store.asked == [(1, False)]
        scene.store.let_through(1)
        await fault
        await turns()
        assert scene.store.asked == [(1, False), (3, True)]

    run(body)


def test_routine_events_pass_nothing() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1, 2)
        ahead = scene.send(900)
        await turns()
        assert not ahead.done()
        assert scene.store.asked == [(1, False)]
        ahead.cancel()

    run(body)


def test_a_batch_that_cannot_be_stored_ends_the_stream_and_is_not_acked() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1)
        scene.store.let_through(1, StoreError("disk full"))
        await scene.ingest.settle()
        assert scene.acks == []
        assert ["disk full" in failure.reason for failure in scene.failures] == [True]

    run(body)


def test_a_fault_that_passes_and_cannot_be_stored_is_the_readers_error() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1)
        fault = scene.send(900, grave=True)
        scene.store.let_through(900, StoreError("disk full"))
        with pytest.raises(StoreError):
            await fault

    run(body)


def test_a_mistake_of_ours_while_storing_ends_the_stream_too_and_is_not_swallowed() -> None:
    async def body(scene: Scene) -> None:
        await scene.send(1)
        scene.store.let_through(1, TypeError("ours"))
        await scene.ingest.settle()
        assert scene.acks == []
        assert [failure.reason for failure in scene.failures] == ["the batch was not stored: TypeError"]

    run(body)
