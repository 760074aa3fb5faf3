"""A day without the controller, then the link is back: how long the backlog takes, and what a new fault waits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from fleet import Fleet
from link import Link
from spooled_nodes import SpooledNode

from nodetriage.agent.delivery.stream import BATCH_EVENTS
from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

LIMIT_S = 120.0
NEW = "new"  # part of a node
NEW_FAULTS = 5  # one after the other, on different nodes, while the backlog goes
IN_FLIGHT = 2 * BATCH_EVENTS  # of a node's backlog, at the most, where the link stops: one sent, one acked
BEGUN = 0.05  # of the backlog, before the first of them


@dataclass(frozen=True, slots=True)
class BacklogOutcome:
    """Times are until the ack, which says that an event is on the controller's disk."""

    delivered_s: float  # from the link's return until the last event of the backlog
    fault_s: tuple[float, ...]  # from a new fault on a node; empty where it was held
    arrived: dict[str, list[int]]  # numbers of the backlog's events by node, as a subscriber of Watch saw them come
    overtaken: tuple[int, ...]  # events of the node's own backlog that came after the new fault, the same


class _Subscriber:
    def __init__(self) -> None:
        self.backlog: dict[str, list[int]] = {}
        self.before_fault: dict[str, int] = {}  # events of the node's backlog
        self.count = 0

    async def follow(self, address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            watch = health_pb2_grpc.NodeHealthStub(channel).Watch  # type: ignore[no-untyped-call]
            async for one in watch(pb.WatchRequest(follow=True)):
                if one.event.component.startswith("old-"):
                    self.backlog.setdefault(one.node, []).append(one.event.seq)
                elif one.event.component == NEW:
                    self.before_fault[one.node] = len(self.backlog.get(one.node, ()))
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


async def deliver(fleet: Fleet, link: Link, nodes: int, events: int, *, held: bool = False) -> BacklogOutcome:
    """The link is cut; each node has `events` in its spool; then it is back, and soon there are new faults.

    `held`: they are made on all nodes whose backlog is under way, while the link stands still, and no time is taken.
    Otherwise a slow disk may keep a fault for longer than the backlog takes, and nothing is left to overtake.
    Raises TimeoutError.
    """
    subscriber, fault_s = _Subscriber(), tuple[float, ...]()
    following = asyncio.ensure_future(subscriber.follow(fleet.address))
    try:
        async with _nodes(fleet.folder, nodes, link.address) as running:
            for node in running:
                node.pass_a_day(events)
            # What is not on disk when a stream begins is no backlog, but goes as it comes.
            await _until(lambda: all(len(node.spool.backlog()[0]) == events for node in running))

            def to_come() -> int:
                return sum(node.spool.depth for node in running)

            began_s = time.monotonic()
            link.restore()
            await _until(lambda: to_come() < nodes * events * (1 - BEGUN))
            if held:
                await _held_faults(link, [node for node in running if IN_FLIGHT < node.spool.depth < events])
            else:
                fault_s = await _new_faults([running[i * nodes // NEW_FAULTS] for i in range(NEW_FAULTS)])
            await _until(lambda: to_come() == 0)
            delivered_s = time.monotonic() - began_s
            await _until(lambda: subscriber.count >= fleet.history("SELECT count(*) FROM events")[0][0])
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    overtaken = tuple(events - before for before in subscriber.before_fault.values())
    return BacklogOutcome(round(delivered_s, 3), fault_s, subscriber.backlog, overtaken)


async def _new_faults(nodes: Sequence[SpooledNode]) -> tuple[float, ...]:
    """One after the other; how long each took."""
    took_s = []
    for node in nodes:
        began_s = time.monotonic()
        seq = node.lose_gpu(NEW)
        await _until(partial(node.has_delivered, seq))
        took_s.append(round(time.monotonic() - began_s, 3))
    return tuple(took_s)


async def _held_faults(link: Link, nodes: Sequence[SpooledNode]) -> None:
    """All at once; returns when each may be sent, which its node does with the next message that it sends."""
    link.hold()
    seqs = [node.lose_gpu(NEW) for node in nodes]
    await _until(lambda: all(node.spool.since(seq - 1, 1) for node, seq in zip(nodes, seqs, strict=True)))
    link.let_go()
