"""Peers that mean harm, against the controller as a process: sent away and logged, and a good agent never notices."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import AgentStream, event
from fleet_client import hello as old_hello
from guarded import LIMITS, Guarded, guarded
from secure import Site, Witness, is_closed, plain_socket, secure_agent, tls_socket
from slurm_wait import wait_until

from nodetriage.controller.auth.certificate import Role
from nodetriage.v1 import health_pb2 as pb

VERSION = metadata.version("nodetriage")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty SETTINGS, RFC 9113 3.4
PING = b"\0\0\x08\6\0\0\0\0\0" + b"8 bytes!"


def hello(node: str) -> pb.AgentMessage:
    return old_hello(node, agent_version=VERSION)


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@asynccontextmanager
async def witness(controller: Guarded, node: str = "good") -> AsyncIterator[Witness]:
    async with secure_agent(controller.target, controller.site.credentials(Role.NODE, node)) as stream:
        welcome = await stream.hello(node, agent_version=VERSION)
        served = Witness(stream)
        served._seq = max((r.last_seq for r in welcome.stored), default=0)
        await served.is_served()
        yield served


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


def say(*data: bytes) -> Callable[[Guarded], None]:
    def attack(controller: Guarded) -> None:
        with plain_socket(controller.target) as connection:
            for component in data:
                connection.sendall(component)
            assert is_closed(connection)

    return attack


def shake(certificate: Callable[[Site, Path], tuple[Path, Path] | None]) -> Callable[[Guarded], None]:
    def attack(controller: Guarded) -> None:
        pair = certificate(controller.site, controller.site.folder.parent / "other")
        shown = {"certfile": str(pair[0]), "keyfile": str(pair[1])} if pair else {}
        with tls_socket(controller.target, **shown) as connection:
            assert is_closed(connection)

    return attack


def client_hello() -> bytes:
    """The first message of a TLS handshake, as OpenSSL writes it."""
    sent = ssl.MemoryBIO()
    shaking = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="ctl")
    with contextlib.suppress(ssl.SSLWantReadError):
        shaking.do_handshake()
    return sent.read()


HANDSHAKES = {
    "another authority": (
        shake(lambda _, other: _other(other)),
        "CERTIFICATE_VERIFY_FAILED: unable to get local issuer",
    ),
    "expired": (
        shake(lambda site, _: site.pair(Role.NODE, "old", days=1, made_before_days=2)),
        "CERTIFICATE_VERIFY_FAILED: certificate has expired",
    ),
    "no certificate": (shake(lambda *_: None), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    "a controller's certificate": (
        shake(lambda site, _: site.pair(Role.CONTROLLER, "ctl2")),
        "CERTIFICATE_VERIFY_FAILED: unsupported certificate purpose",
    ),
    "garbage": (say(bytes(range(256)) * 8), "WRONG_VERSION_NUMBER"),
    "plain HTTP": (say(b"GET / HTTP/1.1\r\nHost: ctl\r\n\r\n"), "HTTP_REQUEST"),
    "plain HTTP/2": (say(PREFACE), "WRONG_VERSION_NUMBER"),
    "silence": (say(), ""),
    "half a handshake": (say(client_hello()[:100]), ""),
    "a handshake nobody goes on with": (say(client_hello()), ""),
}


def _other(folder: Path) -> tuple[Path, Path]:
    return (Site(folder) if not folder.exists() else _opened(folder)).pair(Role.NODE, "good")


def _opened(folder: Path) -> Site:
    site = Site.__new__(Site)
    from nodetriage.controller.auth.pki import Pki

    site.folder, site.pki = folder, Pki(folder)
    return site


@pytest.mark.parametrize("what", HANDSHAKES)
async def test_who_does_not_complete_the_handshake_is_closed_in_time_and_a_reason_of_tls_is_in_the_journal(
    controller: Guarded, what: str
) -> None:
    attack, reason = HANDSHAKES[what]
    async with witness(controller) as good:
        began_s, before = time.monotonic(), len(controller.program.said())
        await asyncio.to_thread(attack, controller)
        assert time.monotonic() - began_s < LIMITS["handshake_within_s"] + 12  # in all less than the default
        await good.is_served()

        def in_journal() -> bool:
            return reason in controller.program.said()[before:]

        await asyncio.to_thread(wait_until, in_journal, 60, f"gRPC writes {reason!r}")


@asynccontextmanager
async def bad_agent(controller: Guarded, node: str = "bad", **options: Any) -> AsyncIterator[AgentStream]:
    async with secure_agent(controller.target, controller.site.credentials(Role.NODE, node), **options) as stream:
        yield stream


def large(size: int) -> pb.AgentMessage:
    return pb.AgentMessage(events=pb.EventBatch(events=[event(1, component="x" * size)]))


STREAMS = {
    "another node's name": (
        [hello("good")],
        "PERMISSION_DENIED: node bad (by certificate) may not speak for node 'good'",
    ),
    "no hello": ([], f"DEADLINE_EXCEEDED: no hello within {LIMITS['hello_within_s']:g} s"),
    "events before the hello": ([large(1)], "INVALID_ARGUMENT: the first message must be a hello"),
    "a message over the limit": ([hello("bad"), large(70_000)], "RESOURCE_EXHAUSTED: a message of"),
    "a message far over the limit": ([hello("bad"), large(500_000)], "RESOURCE_EXHAUSTED: a message of 500085 bytes"),
}


@pytest.mark.parametrize("what", STREAMS)
async def test_who_breaks_the_protocol_is_logged_with_peer_and_reason(controller: Guarded, what: str) -> None:
    messages, reason = STREAMS[what]
    async with witness(controller) as good, bad_agent(controller) as stream:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.send(*messages)
        assert (await stream.status())[0].name == reason.partition(":")[0]
        await good.is_served()
        known = await asyncio.to_thread(controller.sent_away, reason)
        assert f"{known[-1]['code']}: {known[-1]['reason']}".startswith(reason)
        assert known[-1]["peer"].startswith("ipv4:127.0.0.1:")


async def test_a_message_that_not_even_core_takes_breaks_its_own_stream_off(controller: Guarded) -> None:
    before = len(controller.said("stream broken off"))
    async with witness(controller) as good, bad_agent(controller) as stream:
        await stream.send(hello("bad"))
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.send(large(17 << 20))
        assert (await stream.status())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        await good.is_served()
        broken = await asyncio.to_thread(controller.broke_off, before + 1)
        assert "a message over 16777216 bytes" in broken[before]["by"]


def node_socket(controller: Guarded) -> ssl.SSLSocket:
    certificate, key = controller.site.pair(Role.NODE, "raw")
    return tls_socket(controller.target, certfile=str(certificate), keyfile=str(key))


RAW = {
    "nothing after the handshake": [],
    "garbage after the handshake": [bytes(range(256)) * 20],
    "a connection without any stream": [PREFACE],
    "a flood of pings": [PREFACE, PING * 1000],
    "a frame larger than allowed": [PREFACE, b"\xff\xff\xff\0\0\0\0\0\1" + bytes(100_000)],
    "headers without end": [
        PREFACE,
        b"\0\0\x0a\1\0\0\0\0\1" + bytes(10),
        *[b"\0\x40\0\x09\0\0\0\0\1" + bytes(16384)] * 20,
    ],
}


@pytest.mark.parametrize("what", RAW)
async def test_who_has_a_certificate_and_speaks_no_proper_http2_is_cut_off(controller: Guarded, what: str) -> None:
    def attack() -> None:
        with node_socket(controller) as connection:
            with contextlib.suppress(OSError):
                for component in RAW[what]:
                    connection.sendall(component)
            assert is_closed(connection)

    async with witness(controller) as good:
        await asyncio.to_thread(attack)
        await good.is_served()


async def test_more_connections_than_allowed_are_closed_and_silent_ones_make_room(
    controller: Guarded,
) -> None:
    async with witness(controller) as good:
        many = [plain_socket(controller.target) for _ in range(int(LIMITS["max_connections"]) + 20)]
        try:
            await good.is_served()
            assert await asyncio.to_thread(lambda: all(is_closed(c) for c in many))
        finally:
            for connection in many:
                connection.close()
        await good.is_served()
    async with witness(controller, "late") as late:
        await late.is_served()


def test_neither_keys_nor_certificates_are_in_the_log(controller: Guarded) -> None:
    said = controller.program.said()
    assert controller.said("listening")
    for key in controller.site.folder.rglob("*.key"):
        secret = key.read_text().splitlines()[1]
        assert secret not in said
    assert "PRIVATE KEY" not in said
    assert "BEGIN CERTIFICATE" not in said
