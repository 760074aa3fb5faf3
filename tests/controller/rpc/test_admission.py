"""Who and what is let in: hellos, versions, batches, sizes, rates, and plaintext on this machine alone."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import BOOT, VERSION, acked, agent, batch, event, hello, serving
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.rpc.admission import AdmissionSettings, admit_hello
from nodetriage.controller.store import history
from nodetriage.controller.store.history import EventFilter
from nodetriage.controller.store.store import Store
from nodetriage.controller.token_bucket import Bucket
from nodetriage.service.address import is_local
from nodetriage.v1 import health_pb2 as pb


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


async def stored(store: Store) -> list[tuple[str, int]]:
    found = await store.read(lambda c: history.events_after(c, EventFilter(), 10_000))
    return [(s.node, s.event.seq) for s in found]


REFUSED = {
    "another protocol": (hello(protocol=2), grpc.StatusCode.FAILED_PRECONDITION, "protocol 2, controller 0.4.2"),
    "two minor versions newer": (hello(agent_version="0.6.0"), grpc.StatusCode.FAILED_PRECONDITION, "agent 0.6.0"),
    "another major version": (hello(agent_version="1.4.0"), grpc.StatusCode.FAILED_PRECONDITION, "controller 0.4.2"),
    "no version": (hello(agent_version="new"), grpc.StatusCode.INVALID_ARGUMENT, "agent_version"),
    "no node": (hello(node=""), grpc.StatusCode.INVALID_ARGUMENT, "hello.node"),
    "a path as node": (hello(node="../n1"), grpc.StatusCode.INVALID_ARGUMENT, "hello.node"),
    "no boot id": (hello(boot_id=""), grpc.StatusCode.INVALID_ARGUMENT, "hello.boot_id"),
    "the controller's own boot": (
        hello(boot_id="controller"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "the controller's own",
    ),
    "a long profile": (hello(profile="p" * 65), grpc.StatusCode.INVALID_ARGUMENT, "hello.profile"),
    "a long version": (hello(agent_version="0.4.2+" + "x" * 60), grpc.StatusCode.INVALID_ARGUMENT, "agent_version"),
    "no hello": (batch(1), grpc.StatusCode.INVALID_ARGUMENT, "first message must be a hello"),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_hello_that_cannot_be_served_is_refused_with_the_reason(tmp_path: Path, why: str) -> None:
    message, code, reason = REFUSED[why]
    async with serving(tmp_path) as (server, _, target), agent(target) as stream:
        await stream.send(message)
        status = await stream.status()
        assert status[0] == code
        assert reason in status[1]
        assert not server.connected()


@pytest.mark.parametrize("version", ["0.3.9", "0.4.0", "0.5.0.dev1+g123"])
def test_one_minor_version_of_difference_is_served(version: str) -> None:
    admit_hello(hello(agent_version=version).hello, VERSION)


REFUSED_LATER = {
    "a second hello": hello(),
    "an event without a number": pb.AgentMessage(events=pb.EventBatch(events=[event(0)])),
    "a number no database holds": pb.AgentMessage(events=pb.EventBatch(events=[event(2**63)])),
    "an event without a boot": pb.AgentMessage(events=pb.EventBatch(events=[event(1, boot="")])),
    "the controller's own boot": pb.AgentMessage(events=pb.EventBatch(events=[event(1, boot="controller")])),
    "a time before all time": pb.AgentMessage(events=pb.EventBatch(events=[event(1, at_unix_us=-1)])),
    "longer up than any node": pb.AgentMessage(events=pb.EventBatch(events=[event(1, at_boot_us=2**63)])),
    "a time after all time": pb.AgentMessage(events=pb.EventBatch(events=[event(1, at_unix_us=2**63 - 1)])),
    "too many events": batch(*range(1, 12)),
}


@pytest.mark.parametrize("what", REFUSED_LATER)
async def test_a_message_that_makes_no_sense_ends_the_stream_and_stores_nothing(tmp_path: Path, what: str) -> None:
    limits = AdmissionSettings(max_events_per_batch=10)
    async with serving(tmp_path, admission=limits) as (_, store, target), agent(target) as stream:
        await stream.hello("n1")
        await stream.send(REFUSED_LATER[what])
        assert (await stream.status())[0] == grpc.StatusCode.INVALID_ARGUMENT
        assert await stored(store) == []


async def test_a_message_over_the_size_limit_ends_only_its_own_stream(tmp_path: Path) -> None:
    limits = AdmissionSettings(max_message_bytes=4096)
    async with serving(tmp_path, admission=limits) as (_, _, to), agent(to) as large, agent(to) as small:
        await large.hello("n1")
        await small.hello("n2")
        await large.send(pb.AgentMessage(events=pb.EventBatch(events=[event(1, component="x" * 8192)])))
        assert (await large.status())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        await small.send(batch(1))
        assert acked(await small.next()) == [(BOOT, 1, 1)]


async def test_who_connects_and_says_nothing_is_sent_away(tmp_path: Path) -> None:
    limits = AdmissionSettings(hello_within_s=0.05)
    async with serving(tmp_path, admission=limits) as (_, _, target), agent(target) as stream:
        assert (await stream.status())[0] == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_more_agents_than_allowed_are_refused_but_a_known_node_may_come_back(tmp_path: Path) -> None:
    limits = AdmissionSettings(max_agents=1)
    async with (
        serving(tmp_path, admission=limits) as (_, _, target),
        agent(target) as first,
        agent(target) as second,
        agent(target) as again,
    ):
        await first.hello("n1")
        await second.send(hello("n2"))
        assert (await second.status())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        await again.hello("n1")


@pytest.mark.parametrize("listen", ["0.0.0.0:7443", "[::]:7443", "10.0.0.1:7443", "controller.example.org:7443"])
async def test_plaintext_beyond_this_machine_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigError, match="proves nobody's identity"):
        async with serving(tmp_path, listen):
            pass


@pytest.mark.parametrize("listen", ["127.0.0.1:7443", "127.8.9.1:0", "[::1]:7443", "localhost:7443", "unix:/run/x"])
def test_loopback_and_unix_sockets_are_local(listen: str) -> None:
    assert is_local(listen)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 5)), max_size=60))
def test_a_node_that_obeys_its_bucket_never_exceeds_rate_and_burst(sends: list[tuple[int, float]]) -> None:
    bucket, now_s, sent = Bucket(100.0, 1000, 0.0), 0.0, 0
    for count, idle_s in sends:
        now_s += idle_s
        assert sent <= 1000 + 100.0 * now_s + 1e-6
        sent += count
        now_s += bucket.take(count, now_s)
