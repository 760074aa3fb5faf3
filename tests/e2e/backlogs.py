"""A day without the controller, then the link is back: how long the backlog takes, and what a new fault waits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from fleet import Fleet
from link import Link
from spooled_nodes import SpooledNode

from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

LIMIT_S = 120.0
NEW_FAULTS = 5  # one after the other, on different nodes, while the backlog goes
BEGUN = 0.05  # of the backlog, before the first of them


@dataclass(frozen=True, slots=True)
class BacklogOutcome:
    """Times are until the ack, which says that an event is on the controller's disk."""

    delivered_s: float  # from the link's return until the last event of the backlog
    fault_s: tuple[float, ...]  # from a new fault on a node
    backlog_left: tuple[int, ...]  # events that were still to be acked when each of these was made
    arrived: dict[str, list[int]]  # numbers of the backlog's events by node, as a subscriber of Watch saw them come


class _Subscriber:
    def __init__(self) -> None:
        self.backlog: dict[str, list[int]] = {}
        self.count = 0

    async def follow(self, address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            watch = health_pb2_grpc.NodeHealthStub(channel).Watch  # type: ignore[no-untyped-call]
            async for one in watch(pb.WatchRequest(follow=True)):
                if one.event.part.startswith("old-"):
                    self.backlog.setdefault(one.node, []).append(one.event.seq)
                self.count += 1


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 the subscriber cannot know what is waited for
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _nodes(folder: Path, count: int, address: str) -> AsyncIterator[list[SpooledNode]]:
    nodes = [SpooledNode(folder / f"n{i}", f"n{i}", [address]) for i in range(count)]
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
        await asyncio.sleep(0)


async def deliver(fleet: Fleet, link: Link, nodes: int, events: int) -> BacklogOutcome:
    """The link is cut; each node has `events` in its spool; then it is back. Raises TimeoutError."""
    subscriber, fault_s, left = _Subscriber(), [], []
    following = asyncio.ensure_future(subscriber.follow(fleet.address))
    try:
        async with _nodes(fleet.folder, nodes, link.address) as running:
            for node in running:
                node.pass_a_day(events)
            await _until(lambda: all(event.durable for n in running for event in n.spool.backlog()[0]))

            def to_come() -> int:
                return sum(node.spool.depth for node in running)

            began_s = time.monotonic()
            link.restore()
            await _until(lambda: to_come() < nodes * events * (1 - BEGUN))
            for i in range(NEW_FAULTS):
                left.append(to_come())
                fault_s.append(await _new_fault(running[i * nodes // NEW_FAULTS], f"new-{i}"))
            await _until(lambda: to_come() == 0)
            delivered_s = time.monotonic() - began_s
            await _until(lambda: subscriber.count >= nodes * events + NEW_FAULTS)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    return BacklogOutcome(round(delivered_s, 3), tuple(fault_s), tuple(left), subscriber.backlog)


async def _new_fault(node: SpooledNode, part: str) -> float:
    began_s = time.monotonic()
    seq = node.lose_gpu(part)
    await _until(lambda: node.has_delivered(seq))
    return round(time.monotonic() - began_s, 3)
