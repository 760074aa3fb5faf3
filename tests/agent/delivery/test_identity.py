"""How a node shows who it is, and whom it believes, over real TLS and with a real munged."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import hello, serving
from munged import Munged
from secure import Site

from nodetriage.agent.delivery.connection import Ended, Identity, Refused, connect
from nodetriage.agent.delivery.identity import MungeIdentity, TlsIdentity, identify_by
from nodetriage.agent.settings.config import Agent, AgentSettings, Controller, IdentitySettings
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth.addresses import NodeAddresses
from nodetriage.controller.auth.certificate import Role, self_signed
from nodetriage.controller.auth.identity_settings import IdentitySettings as ControllersIdentity
from nodetriage.controller.auth.munge import MungeAuthenticator
from nodetriage.controller.auth.tls import TlsAuthenticator
from nodetriage.service.claim import CONTROLLER, METADATA_KEY, SERVER_NAME, TTL_S, Claim, parse
from nodetriage.service.munge import Munge
from nodetriage.v1 import health_pb2 as pb


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


async def welcome(address: str, identity: Identity, node: str = "n1") -> pb.Welcome:
    """What the controller says to our hello. Raises what `connect` raises."""
    async with connect(address, identity) as line:
        await line.write(hello(node))
        message = await line.read()
        assert message is not None
        return message.welcome


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    running = Munged()
    yield running
    running.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "pki")


def tls(site: Site, node: str = "n1", **more: Any) -> IdentitySettings:
    certificate, key = site.pair(Role.NODE, node)
    return IdentitySettings("tls", site.folder / "ca.crt", certificate, key, **more)


async def test_a_node_with_a_certificate_is_let_in_and_a_renewed_one_is_read_afresh(tmp_path: Path, site: Site) -> None:
    identify = TlsIdentity(tls(site))
    async with serving(tmp_path, "127.0.0.1:0", (TlsAuthenticator(site.settings()),)) as (server, _, target):
        assert (await welcome(target, await identify(target))).controller_version
        site.pair(Role.NODE, "n1")
        server.gate.deny([f.holder.serial for f in site.pki.issued() if f.holder.name == "other"])
        assert (await welcome(target, await identify(target))).controller_version


async def test_a_controller_of_another_authority_or_name_is_told_nothing(tmp_path: Path, site: Site) -> None:
    other = Site(tmp_path / "other")
    async with serving(tmp_path, "127.0.0.1:0", (TlsAuthenticator(other.settings()),)) as (_, _, target):
        with pytest.raises(Ended, match="CERTIFICATE_VERIFY_FAILED"):
            await welcome(target, await TlsIdentity(tls(site))(target))
    async with serving(tmp_path, "127.0.0.1:0", (TlsAuthenticator(site.settings()),)) as (_, _, target):
        with pytest.raises(Ended, match=r"Hostname mismatch|IP address mismatch"):
            await welcome(target, await TlsIdentity(tls(site, controller_name="ctl2"))(target))


async def test_a_node_cannot_stand_in_for_the_controller(tmp_path: Path, site: Site) -> None:
    certificate, key = site.pair(Role.NODE, "127.0.0.1")
    rogue = ControllersIdentity("tls", site.folder / "ca.crt", certificate, key)
    async with serving(tmp_path, "127.0.0.1:0", (TlsAuthenticator(rogue),)) as (_, _, target):
        with pytest.raises(Ended, match=r"CERTIFICATE_VERIFY_FAILED|Verification"):
            await welcome(target, await TlsIdentity(tls(site))(target))


async def test_files_that_are_no_good_end_the_start_and_later_only_the_connection(site: Site) -> None:
    own = tls(site)
    identify = identify_by(AgentSettings(identity=own))
    own.key.chmod(0o640)
    with pytest.raises(ConfigError, match=r"identity.key: .*n1.key: others have access \(mode 0640\)"):
        identify_by(AgentSettings(identity=own))
    with pytest.raises(Refused, match="chmod 0600"):
        await identify("ctl:7443")
    own.key.chmod(0o600)
    other = tls(site, "n2")
    own.key.write_bytes(other.key.read_bytes())
    with pytest.raises(ConfigError, match=r"and its key in .*, both in PEM"):
        identify_by(AgentSettings(identity=own))
    own.key.unlink()
    with pytest.raises(ConfigError, match=r"n1.key: No such file"):
        identify_by(AgentSettings(identity=own))


@pytest.mark.parametrize("kind", ["tls", "munge"])
async def test_a_unix_socket_needs_no_proof_nothing_else_goes_without(site: Site, munged: Munged, kind: str) -> None:
    own = tls(site) if kind == "tls" else IdentitySettings("munge", munge_socket=munged.socket)
    identify = identify_by(AgentSettings(agent=Agent(node="n1"), identity=own))
    assert (await identify("unix:/run/x")).tls is None
    assert (await identify("127.0.0.1:1")).tls is not None


def test_plaintext_beyond_the_machine_ends_the_start_and_says_what_to_set() -> None:
    settings = AgentSettings(controller=Controller(addresses=("unix:/run/x", "ctl:7443")))
    with pytest.raises(ConfigError, match=r"addresses: ctl:7443: plaintext .* \[identity\] kind to tls .* or munge"):
        identify_by(settings)


async def no_names() -> dict[str, tuple[str, ...]]:
    return {"n1": ("127.0.0.1",)}


def by_munge(munged: Munged, **more: Any) -> MungeIdentity:
    return MungeIdentity(IdentitySettings("munge", munge_socket=munged.socket, **more), "n1")


async def test_munge_lets_a_node_in_without_any_certificate_of_its_own(tmp_path: Path, munged: Munged) -> None:
    proof = MungeAuthenticator(ControllersIdentity("munge", munge_socket=munged.socket), NodeAddresses(no_names))
    identify = by_munge(munged)
    async with serving(tmp_path, "127.0.0.1:0", (proof,)) as (_, _, target):
        for _ in range(2):
            assert (await welcome(target, await identify(target))).controller_version
        used = await identify(target)
        await welcome(target, used)
        with pytest.raises(Ended, match="UNAUTHENTICATED: munge: replayed"):
            await welcome(target, used)
        with pytest.raises(Refused, match=r"runs as uid 0; expected identity.controller_uid, \d+"):
            await welcome(target, await by_munge(munged, controller_uid=64030)(target))


@asynccontextmanager
async def impostor(answer: Callable[[Claim], str | None], munged: Munged) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that takes anyone's credential and says `answer` of itself; gives what it was told beyond that."""
    told: list[bytes] = []
    pair = self_signed(SERVER_NAME, datetime.datetime.now(datetime.UTC))

    async def handle(_: Any, context: Any) -> None:
        credential = dict(context.invocation_metadata())[METADATA_KEY]
        claim = parse(Munge(munged.socket).decode(credential).payload)
        assert claim
        said = answer(claim)
        await context.send_initial_metadata(((METADATA_KEY, said),) if said else ())
        while (raw := await context.read()) is not grpc.aio.EOF:
            told.append(raw)

    server = grpc.aio.server()
    method = {"Connect": grpc.stream_stream_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("nodetriage.v1.NodeHealth", method),))
    credentials = grpc.ssl_server_credentials([(pair.key_pem, pair.certificate_pem)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", told
    finally:
        await server.stop(0)


async def test_who_only_plays_the_controller_is_told_nothing(munged: Munged) -> None:
    def answer(credential: str | None) -> Callable[[Claim], str | None]:
        return lambda _: credential

    def another(claim: Claim) -> str:
        return Munge(munged.socket).encode(Claim(CONTROLLER, "n1", claim.certificate, "0" * 32).encoded(), TTL_S)

    def as_nobody(claim: Claim) -> str:
        mine = Claim(CONTROLLER, "n1", claim.certificate, claim.nonce)
        return munged.credential(mine.encoded().decode(), uid=65534)

    for play, why in (
        (answer(None), "did not prove with munge"),
        (answer("MUNGE:AAAA:"), "munge credential: invalid"),
        (another, "is not for this connection"),
        (as_nobody, "runs as uid 65534"),
    ):
        async with impostor(play, munged) as (target, told):
            with pytest.raises(Refused, match=why):
                await welcome(target, await by_munge(munged)(target))
            assert told == []


async def test_a_munged_that_is_away_is_said_and_keeps_the_agent_waiting(munged: Munged) -> None:
    identify = MungeIdentity(IdentitySettings("munge", munge_socket="/nonexistent/munge"), "n1")
    async with impostor(lambda _: None, munged) as (target, told):
        with pytest.raises(Refused, match="munge: munged does not answer"):
            await welcome(target, await identify(target))
        assert told == []
    with pytest.raises(OSError, match="Connect call failed"):
        await welcome("127.0.0.1:1", await identify("127.0.0.1:1"))
