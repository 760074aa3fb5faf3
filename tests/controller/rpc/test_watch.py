"""Watch delivers each stored event from a cursor on, filtered, and goes on with what comes."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import agent, channel, event, serving

from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.watch import until
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

NO_LONGER = Refused(grpc.StatusCode.UNAUTHENTICATED, "no longer")


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


async def fill(store: Store, node: str, *events: pb.Event) -> None:
    await store.record_hello(Hello(node, "b", "0.4.2", ""), 1)
    await store.record(node, events, 5)


async def watched(target: str, **request: Any) -> list[pb.WatchedEvent]:
    async with channel(target) as opened:
        return [w async for w in health_pb2_grpc.NodeHealthStub(opened).Watch(pb.WatchRequest(**request))]


async def test_without_follow_it_ends_at_the_newest_and_a_cursor_resumes_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store, target):
        await fill(store, "n1", *(event(seq) for seq in range(1, 1201)))  # more than two pages
        found = await watched(target)
        assert [w.event.seq for w in found] == list(range(1, 1201))
        assert (found[0].node, found[0].received_unix_us) == ("n1", 5)
        rest = await watched(target, after_cursor=found[699].cursor)
        assert [w.event.seq for w in rest] == list(range(701, 1201))
        assert await watched(target, after_cursor=found[-1].cursor) == []


async def test_only_what_was_asked_for_is_delivered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store, target):
        await fill(store, "n1", event(1), event(2, severity=pb.SEVERITY_MAJOR), event(3, fault="ib_link_down"))
        await fill(store, "n2", event(4))
        assert [w.event.seq for w in await watched(target, nodes=["n1"])] == [1, 2, 3]
        assert [w.event.seq for w in await watched(target, faults=["ib_link_down"])] == [3]
        assert [w.event.seq for w in await watched(target, min_severity=pb.SEVERITY_CRITICAL)] == [1, 3, 4]


async def test_a_follower_hears_what_an_agent_sends_and_skips_what_it_did_not_ask_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store, target), channel(target) as opened, agent(target) as stream:
        await fill(store, "n2", event(1))
        request = pb.WatchRequest(nodes=["n1"], follow=True)
        call = health_pb2_grpc.NodeHealthStub(opened).Watch(request)
        await call.wait_for_connection()
        await stream.hello("n1")
        await fill(store, "n2", event(2))
        for seq in (1, 2, 3):
            await stream.send(pb.AgentMessage(events=pb.EventBatch(events=[event(seq)])))
            async with asyncio.timeout(60):
                heard = await call.read()
            assert (heard.node, heard.event.seq) == ("n1", seq)
        call.cancel()


async def test_events_end_with_the_reason_and_who_is_handing_one_on_is_not_disturbed() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        for number in (1, 2, 3):
            yield number
        await asyncio.Event().wait()

    ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
    heard = []

    async def hand_on() -> None:
        async for number in until(ended, numbers()):
            heard.append(number)
            if number == 2:
                ended.set_result(NO_LONGER)
                await asyncio.sleep(0)  # a write that takes its time
                heard.append(0)

    with pytest.raises(Refused, match="no longer"):
        await hand_on()
    assert heard == [1, 2, 0]


async def test_a_wait_for_the_next_event_is_broken_off_and_its_source_is_closed() -> None:
    closed = asyncio.Event()

    async def silent() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
    events = until(ended, silent())
    assert await anext(events) == 1
    asyncio.get_running_loop().call_soon(ended.set_result, NO_LONGER)
    with pytest.raises(Refused, match="no longer"):
        await anext(events)
    assert closed.is_set()
