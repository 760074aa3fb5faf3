"""The service on a real socket: hello, acks after the commit, refusals, commands, freshness, health, reflection."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import BOOT, LIMIT_S, VERSION, acked, agent, batch, channel, ended, event, hello, serving
from grpc_health.v1 import health_pb2 as health_protocol
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.refused import Refused
from nodetriage.controller.store import history
from nodetriage.controller.store.history import EventFilter
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


async def stored(store: Store) -> list[tuple[str, int]]:
    found = await store.read(lambda c: history.events_after(c, EventFilter(), 10_000))
    return [(s.node, s.event.seq) for s in found]


async def test_a_batch_is_acked_once_it_is_on_disk(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store, target), agent(target) as stream:
        welcome = await stream.hello("n1")
        assert (welcome.controller_version, welcome.heartbeat_every_ms) == (VERSION, 5000)
        assert not welcome.stored
        await stream.send(batch(1, 2, 4))
        assert acked(await stream.next()) == [(BOOT, 1, 2), (BOOT, 4, 4)]
        assert await stored(store) == [("n1", 1), ("n1", 2), ("n1", 4)]


async def test_an_agent_that_lost_its_acks_hears_in_the_welcome_what_is_stored(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store, target):
        async with agent(target) as stream:
            await stream.hello("n1")
            await stream.send(batch(1, 2, 5))
            await stream.next()
        async with agent(target) as stream:
            welcome = await stream.hello("n1")
            assert [(r.first_seq, r.last_seq) for r in welcome.stored] == [(1, 2), (5, 5)]
            await stream.send(batch(2, 3, 4))
            assert acked(await stream.next()) == [(BOOT, 2, 4)]
        assert sorted(await stored(store)) == [("n1", seq) for seq in (1, 2, 3, 4, 5)]


@given(noise=st.lists(st.binary(max_size=200), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
async def test_garbage_is_refused_or_ignored_and_the_next_agent_is_served(
    noise: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with serving(tmp_path_factory.mktemp("s")) as (server, store, target), channel(target) as opened:
        call = opened.stream_stream("/nodetriage.v1.NodeHealth/Connect")()
        understood = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
        try:
            for piece in (hello("noisy").SerializeToString(), *noise):
                await call.write(piece)
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # refused while still writing
            understood.add(grpc.StatusCode.INTERNAL)  # all that grpc.aio tells a client whose write was cut off
        code, _ = await ended(call)
        assert code in understood
        assert server.gate.refusals.total == (code is not grpc.StatusCode.OK)
        async with agent(target) as stream:
            await stream.hello("n1")
            await stream.send(batch(1))
            assert acked(await stream.next()) == [(BOOT, 1, 1)]
        assert ("n1", 1) in await stored(store)


async def test_bytes_that_are_no_message_are_an_invalid_argument(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, target), channel(target) as opened:
        call = opened.stream_stream("/nodetriage.v1.NodeHealth/Connect")()
        await call.write(b"\xff\xff\xff")
        code, details = await ended(call)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "not a nodetriage.v1.AgentMessage" in details


async def test_a_newer_stream_of_a_node_ends_the_older_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as old, agent(target) as new:
        await old.hello("n1")
        await new.hello("n1")
        code, details = await old.status()
        assert code == grpc.StatusCode.ABORTED
        assert "newer stream" in details
        await new.send(batch(1))
        assert acked(await new.next()) == [(BOOT, 1, 1)]
        assert list(server.connected()) == ["n1"]


async def test_a_command_comes_back_with_its_result(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as stream:
        await stream.hello("n1")
        command = pb.Command(id="c1", run=pb.RunChecks(checks=["gpu_lost"]))
        asked = asyncio.ensure_future(server.command("n1", command, timeout_s=LIMIT_S))
        assert (await stream.next()).command == command
        await stream.send(pb.AgentMessage(result=pb.CommandResult(id="of another time", done=True)))
        await stream.send(pb.AgentMessage(result=pb.CommandResult(id="c1", done=True, message="ran 1 check")))
        assert (await asked).message == "ran 1 check"


async def test_a_command_that_cannot_be_answered_fails_at_once_or_in_its_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target):
        with pytest.raises(Refused, match="not connected"):
            await server.command("n1", pb.Command(id="c1"))
        async with agent(target) as stream:
            await stream.hello("n1")
            with pytest.raises(TimeoutError):
                await server.command("n1", pb.Command(id="c2"), timeout_s=0.01)
            asked = asyncio.ensure_future(server.command("n1", pb.Command(id="c3"), timeout_s=LIMIT_S))
            assert (await stream.next()).command.id == "c2"
            assert (await stream.next()).command.id == "c3"
        with pytest.raises(Refused, match="stream ended"):
            await asked


async def test_heartbeats_are_kept_in_memory_and_any_message_is_a_sign_of_life(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as stream:
        await stream.hello("n1")
        beat = pb.Heartbeat(boot_id=BOOT, checks=[pb.CheckState(check="gpu_lost", outcome=pb.OUTCOME_OK, age_ms=3)])
        await stream.send(pb.AgentMessage(heartbeat=beat), batch(1))
        await stream.next()
        heard = server.last_seen.of("n1")
        assert heard is not None
        assert heard.heartbeat == beat
        assert list(server.last_seen.silent(heard.at_s + 11, longer_than_s=10)) == ["n1"]
        assert not list(server.last_seen.silent(heard.at_s + 9, longer_than_s=10))
        assert server.last_seen.take_unsaved(heard.at_s) == [heard]
        assert server.last_seen.take_unsaved(heard.at_s) == []


async def test_a_full_disk_is_an_unavailable_controller_and_nothing_is_acked(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store, target), agent(target) as stream:
        await stream.hello("n1")
        await store.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1"))
        large = [event(seq, component="x" * 5000) for seq in range(1, 100)]
        await stream.send(pb.AgentMessage(events=pb.EventBatch(events=large)))
        code, details = await stream.status()
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "full" in details
        assert await stored(store) == []


async def test_stopping_sends_every_agent_away_to_come_back_later(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as stream:
        await stream.hello("n1")
        await server.stop(grace_s=LIMIT_S)  # it takes no longer than the agents' last words
        assert (await stream.status()) == (grpc.StatusCode.UNAVAILABLE, "the controller is stopping")


async def test_a_unix_socket_is_served_too(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path / 'controller.sock'}"
    async with serving(tmp_path, listen) as (_, _, target), agent(target) as stream:
        assert (await stream.hello("n1")).controller_version == VERSION


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    async with serving(tmp_path) as (_, _, target):
        with pytest.raises(ConfigError, match=f"cannot listen on {target}"):
            async with serving(tmp_path / "second", target):
                pass


async def test_health_and_reflection_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, target), channel(target) as opened:
        check = health_pb2_grpc.HealthStub(opened).Check
        answer = await check(health_protocol.HealthCheckRequest(service="nodetriage.v1.NodeHealth"))
        assert answer.status == health_protocol.HealthCheckResponse.SERVING
        ask = reflection_pb2_grpc.ServerReflectionStub(opened).ServerReflectionInfo
        [listed] = [r async for r in ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))]
        assert "nodetriage.v1.NodeHealth" in {s.name for s in listed.list_services_response.service}
