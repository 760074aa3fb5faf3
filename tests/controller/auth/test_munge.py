"""munge against a real munged: one credential for one connection of one node, made by root, now."""

import asyncio
import contextlib
import datetime
import hashlib
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import AgentStream, ended, hello, serving
from munged import Munged
from secure import Witness, secure_agent, secure_channel

from nodetriage.controller.auth.addresses import NodeAddresses
from nodetriage.controller.auth.certificate import self_signed
from nodetriage.controller.auth.identity_settings import IdentitySettings
from nodetriage.controller.auth.munge import MungeAuthenticator
from nodetriage.controller.scheduler import SchedulerUnavailable
from nodetriage.service.claim import AGENT, CONTROLLER, METADATA_KEY, SERVER_NAME, Claim, parse
from nodetriage.service.munge import Munge
from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

UNKNOWN = grpc.StatusCode.UNAUTHENTICATED
HANGS_S = 4.0  # how long munged is waited for where it is to hang; a good agent needs it within that time too
HOSTS = {"n1": ("127.0.0.1",), "n2": ("127.0.0.2", "192.0.2.2"), "n3": ()}


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    running = Munged()
    yield running
    running.close()


def server_certificate(target: str) -> bytes:
    """What a server shows (DER), whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])  # gRPC ends the handshake otherwise
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as plain, context.wrap_socket(plain) as line:
        found = line.getpeercert(binary_form=True)
    assert found
    return found


async def hosts() -> Mapping[str, tuple[str, ...]]:
    return HOSTS


class Controller:
    """A serving controller, and what is needed to call it."""

    def __init__(self, target: str, munge: Munge) -> None:
        self.target, self._munge = target, munge
        self.pem = b""
        self.certificate = ""

    def claim(self, node: str = "n1", **other: str) -> Claim:
        return Claim(
            **{"side": AGENT, "node": node, "certificate": self.certificate, "nonce": secrets.token_hex(16)} | other
        )

    def agent(self, credential: str | None) -> contextlib.AbstractAsyncContextManager[AgentStream]:
        metadata = ((METADATA_KEY, credential),) if credential is not None else ()
        options = {"grpc.ssl_target_name_override": SERVER_NAME}
        return secure_agent(self.target, grpc.ssl_channel_credentials(self.pem), metadata, **options)

    async def refused(self, credential: str | None, node: str = "n1") -> tuple[grpc.StatusCode, str]:
        async with self.agent(credential) as stream:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await stream.send(hello(node))
            return await stream.status()


@asynccontextmanager
async def controller(
    folder: Path,
    munged: Munged,
    names: Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]] = hosts,
    ask_limit_s: float = 60.0,
    **settings: Any,
) -> AsyncIterator[Controller]:
    own = IdentitySettings("munge", munge_socket=munged.socket, **settings)
    authenticator = MungeAuthenticator(own, NodeAddresses(names), ask_limit_s)
    async with serving(folder, "127.0.0.1:0", (authenticator,)) as (_, _, target):
        found = Controller(target, Munge(munged.socket))
        der = await asyncio.to_thread(server_certificate, target)
        found.pem, found.certificate = ssl.DER_cert_to_PEM_cert(der).encode(), hashlib.sha256(der).hexdigest()
        yield found


async def test_a_nodes_root_is_served_and_hears_the_controllers_own_credential(tmp_path: Path, munged: Munged) -> None:
    munge = Munge(munged.socket)
    async with controller(tmp_path, munged) as called:
        claim = called.claim()
        async with called.agent(munge.encode(claim.encoded(), 60)) as stream:
            answer = dict(await stream.call.initial_metadata())[METADATA_KEY]
            vouched = munge.decode(answer)
            assert (vouched.uid, parse(vouched.payload)) == (
                0,
                Claim(CONTROLLER, "n1", called.certificate, claim.nonce),
            )
            await stream.hello("n1")
            await Witness(stream).is_served()


async def test_what_the_nodes_root_did_not_make_for_this_connection_is_refused(tmp_path: Path, munged: Munged) -> None:
    munge = Munge(munged.socket)
    async with controller(tmp_path, munged) as called:
        good = munge.encode(called.claim().encoded(), 60)
        async with called.agent(good) as stream:
            await stream.hello("n1")
            witness = Witness(stream)
            claims = {
                "uid 65534": munged.credential(called.claim().encoded().decode(), uid=65534),
                "is for another connection": munge.encode(called.claim(certificate="0" * 64).encoded(), 60),
                "not made by an agent": munge.encode(called.claim(side=CONTROLLER).encoded(), 60),
                "was not made by an agent": munge.encode(b"for another program", 60),
                "replayed credential": good,
                "invalid credential": good[:-12] + "AAAAAAAAAAA:",
                "not a munge credential": "x" * 5000,
                "no munge credential": None,
                "n2 called from 127.0.0.1, but it is 127.0.0.2, 192.0.2.2": munge.encode(
                    called.claim("n2").encoded(), 60
                ),
                "n3 called from 127.0.0.1, but it has no known address": munge.encode(called.claim("n3").encoded(), 60),
            }
            for why, credential in claims.items():
                code, said = await called.refused(credential)
                assert (code, why in said) == (UNKNOWN, True), (why, said)
                await witness.is_served()
            code, said = await called.refused(munge.encode(called.claim().encoded(), 60), node="n2")
            assert (code, "may not speak for node 'n2'" in said) == (grpc.StatusCode.PERMISSION_DENIED, True)


async def test_a_replay_is_seen_even_if_munged_has_forgotten_it(tmp_path: Path) -> None:
    running = Munged()
    try:
        munge = Munge(running.socket)
        async with controller(tmp_path, running) as called:
            credential = munge.encode(called.claim().encoded(), 60)
            async with called.agent(credential) as stream:
                await stream.hello("n1")
            running.stop()
            running.start()
            assert munge.decode(credential)  # munged has
            running.stop()
            running.start()
            assert await called.refused(credential) == (UNKNOWN, "munge: replayed credential of n1")
    finally:
        running.close()


async def test_a_stale_credential_is_refused_although_munge_still_takes_it(tmp_path: Path, munged: Munged) -> None:
    munge = Munge(munged.socket)
    async with controller(tmp_path, munged, munge_max_age_s=1) as called:
        old, twin = (munge.encode(called.claim().encoded(), 300) for _ in range(2))
        await asyncio.sleep(2.1)  # munge counts whole seconds, by the wall clock alone
        assert munge.decode(twin).age_s > 1
        code, why = await called.refused(old)
        assert (code, "s old, expected at most 1: compare the clocks" in why) == (UNKNOWN, True), why


async def test_a_credential_made_on_another_machine_is_refused(tmp_path: Path, munged: Munged) -> None:
    elsewhere = Munged(key=munged.key, origin="192.0.2.9")
    at_home = Munged(key=munged.key, origin="192.0.2.2")
    try:
        async with controller(tmp_path, munged, names=_both) as called:
            code, why = await called.refused(Munge(elsewhere.socket).encode(called.claim().encoded(), 60))
            assert (code, "was made on 192.0.2.9, but it is 127.0.0.1, 192.0.2.2" in why) == (UNKNOWN, True), why
            async with called.agent(Munge(at_home.socket).encode(called.claim().encoded(), 60)) as stream:
                await stream.hello("n1")
    finally:
        elsewhere.close()
        at_home.close()


async def _both() -> Mapping[str, tuple[str, ...]]:
    return {"n1": ("127.0.0.1", "192.0.2.2")}


async def test_a_munged_that_is_away_is_the_controllers_trouble_and_passes(tmp_path: Path) -> None:
    running = Munged()
    try:
        munge = Munge(running.socket)
        async with controller(tmp_path, running) as called:
            credential = munge.encode(called.claim().encoded(), 60)
            running.stop()
            code, why = await called.refused(credential)
            assert (code, "munged does not answer" in why) == (grpc.StatusCode.UNAVAILABLE, True), why
            running.start()
            async with called.agent(munge.encode(called.claim().encoded(), 60)) as stream:
                await stream.hello("n1")
    finally:
        running.close()


async def test_a_munged_that_hangs_holds_up_nobody_who_is_inside(tmp_path: Path) -> None:
    running = Munged()
    try:
        munge = Munge(running.socket)
        async with (
            controller(tmp_path, running, ask_limit_s=HANGS_S) as called,
            called.agent(munge.encode(called.claim().encoded(), 60)) as inside,
        ):
            await inside.hello("n1")
            witness = Witness(inside)
            late = munge.encode(called.claim("localhost").encoded(), 60)
            running.freeze()
            # More than there are threads.
            asked = [asyncio.ensure_future(called.refused("MUNGE:AAAA:")) for _ in range(12)]
            while not all(one.done() for one in asked):
                await witness.is_served()
                await asyncio.wait(asked, timeout=0.1)
            gave_up = (
                grpc.StatusCode.UNAVAILABLE,
                f"munge: munged on the controller's machine did not answer within {HANGS_S:g} s",
            )
            assert {one.result() for one in asked} == {gave_up}
            running.thaw()
            async with called.agent(late) as stream:
                await stream.hello("localhost")
    finally:
        running.close()


async def test_a_scheduler_that_is_away_leaves_the_names_alone_and_nobody_is_believed_more(
    tmp_path: Path, munged: Munged
) -> None:
    async def away() -> Mapping[str, tuple[str, ...]]:
        raise SchedulerUnavailable("slurmctld is away")

    munge = Munge(munged.socket)
    async with controller(tmp_path, munged, names=away) as called:
        assert (await called.refused(munge.encode(called.claim("n1").encoded(), 60)))[0] == UNKNOWN
        async with called.agent(munge.encode(called.claim("localhost").encoded(), 60)) as stream:
            await stream.hello("localhost")


async def test_who_shows_nothing_hears_of_no_other_service(tmp_path: Path, munged: Munged) -> None:
    async with controller(tmp_path, munged) as called:
        options = {"grpc.ssl_target_name_override": SERVER_NAME}
        async with secure_channel(called.target, grpc.ssl_channel_credentials(called.pem), options) as opened:
            watched = await ended(health_pb2_grpc.NodeHealthStub(opened).Watch(pb.WatchRequest()))
            assert watched[0] == UNKNOWN
            for method in ("grpc.health.v1.Health/Check", "nodetriage.v1.Operator/Undrain"):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await opened.unary_unary(f"/{method}")(b"")
                assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_every_controller_has_a_certificate_of_its_own() -> None:
    now = datetime.datetime.now(datetime.UTC)
    assert self_signed(SERVER_NAME, now).key_pem != self_signed(SERVER_NAME, now).key_pem
