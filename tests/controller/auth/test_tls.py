"""Mutual TLS on a real socket: who is served, who is sent away, and how certificates change without a restart."""

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import ended, event, hello
from secure import Site, Witness, secure_agent, secure_channel, secure_serving
from structlog.testing import capture_logs

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth.certificate import Role
from nodetriage.controller.auth.identity import Identity, ThisMachine, may_operate, may_watch, speaks_for
from nodetriage.controller.auth.tls import TlsAuthenticator
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.gate import Gate
from nodetriage.controller.rpc.last_seen import LastSeen
from nodetriage.controller.rpc.operator import OperatorService
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.rpc.server import NodeHealthServer, ServerSettings
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

UNAVAILABLE, DENIED, UNKNOWN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "pki")


async def refused(target: str, credentials: grpc.ChannelCredentials, node: str = "n1") -> tuple[grpc.StatusCode, str]:
    async with secure_agent(target, credentials) as stream:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.send(hello(node))
        return await stream.status()


async def test_a_node_is_served_under_the_name_in_its_certificate_and_no_other(tmp_path: Path, site: Site) -> None:
    own = site.credentials(Role.NODE, "n1")
    async with secure_serving(tmp_path, site) as (server, _, target), secure_agent(target, own) as stream:
        await stream.hello("n1")
        await Witness(stream).is_served()
        code, why = await refused(target, site.credentials(Role.NODE, "n2"))
        assert (code, why) == (DENIED, "node n2 (by certificate) may not speak for node 'n1'")
        assert server.connected() == ("n1",)
        await Witness(stream).is_served()


STRANGERS = {
    "a stranger's authority": lambda site, other: other.credentials(Role.NODE, "n1", trust=site),
    "an expired certificate": lambda site, _: site.credentials(Role.NODE, "n1", days=1, made_before_days=2),
    "one that is not valid yet": lambda site, _: site.credentials(Role.NODE, "n1", made_before_days=-1),
    "no certificate": lambda site, _: grpc.ssl_channel_credentials((site.folder / "ca.crt").read_bytes()),
    "a controller's certificate": lambda site, _: site.credentials(Role.CONTROLLER, "n1"),
}


@pytest.mark.parametrize("what", STRANGERS)
async def test_without_a_valid_certificate_for_clients_nobody_gets_a_connection(
    tmp_path: Path, site: Site, what: str
) -> None:
    stranger = STRANGERS[what](site, Site(tmp_path / "other"))
    async with (
        secure_serving(tmp_path, site) as (_, _, target),
        secure_agent(target, site.credentials(Role.NODE, "n2")) as good,
    ):
        await good.hello("n2")
        assert (await refused(target, stranger))[0] == UNAVAILABLE
        await Witness(good).is_served()


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.READER])
async def test_people_are_no_nodes_even_by_the_same_name(tmp_path: Path, site: Site, role: Role) -> None:
    async with secure_serving(tmp_path, site) as (_, _, target):
        assert (await refused(target, site.credentials(role, "n1")))[0] == DENIED


async def test_watching_takes_a_reader_or_an_operator(tmp_path: Path, site: Site) -> None:
    async def watching(target: str, role: Role) -> grpc.StatusCode:
        async with secure_channel(target, site.credentials(role, "x")) as opened:
            return (await ended(health_pb2_grpc.NodeHealthStub(opened).Watch(pb.WatchRequest())))[0]

    async with secure_serving(tmp_path, site) as (_, _, target):
        assert await watching(target, Role.READER) == grpc.StatusCode.OK
        assert await watching(target, Role.OPERATOR) == grpc.StatusCode.OK
        assert await watching(target, Role.NODE) == DENIED


async def test_a_watcher_who_is_denied_hears_no_more(tmp_path: Path, site: Site) -> None:
    own = site.credentials(Role.READER, "bob")
    async with secure_serving(tmp_path, site) as (server, _, target), secure_channel(target, own) as opened:
        call = health_pb2_grpc.NodeHealthStub(opened).Watch(pb.WatchRequest(follow=True))
        await call.initial_metadata()
        assert server.gate.deny(("alice",)) == 0
        assert server.gate.deny(("bob",)) == 1
        code, why = await ended(call)
        assert (code, "reader bob (by certificate) is on the list" in why) == (UNKNOWN, True), why


async def test_a_watcher_who_is_denied_the_moment_it_is_let_in_is_told_why(tmp_path: Path, site: Site) -> None:
    own = site.credentials(Role.READER, "bob")
    async with secure_serving(tmp_path, site) as (server, _, target), secure_channel(target, own) as opened:
        for _ in range(50):
            server.gate.deny(())
            call = health_pb2_grpc.NodeHealthStub(opened).Watch(pb.WatchRequest(follow=True))
            while server.gate.deny(("bob",)) == 0:  # nobody is inside yet
                server.gate.deny(())
                await asyncio.sleep(0)
            code, why = await ended(call)
            assert (code, "reader bob (by certificate) is on the list" in why) == (UNKNOWN, True), why


@pytest.mark.parametrize("read_first", [0, 1, 40])
async def test_a_watcher_who_is_denied_while_it_does_not_read_is_told_why_when_it_does(
    tmp_path: Path, site: Site, read_first: int
) -> None:
    own = site.credentials(Role.READER, "bob")
    async with secure_serving(tmp_path, site) as (server, store, target), secure_channel(target, own) as opened:
        await store.record_hello(Hello("n1", "b", "0.4.2", ""), 1)
        for first in range(1, 2001, 500):  # far more than what is sent to one who does not read
            await store.record("n1", [event(first + n, component="x" * 4000) for n in range(500)], 5)
        for _ in range(5):
            server.gate.deny(())
            call = health_pb2_grpc.NodeHealthStub(opened).Watch(pb.WatchRequest(follow=True))
            await call.initial_metadata()
            for _ in range(read_first):
                await call.read()
            assert server.gate.deny(("bob",)) == 1
            code, why = await ended(call)
            assert (code, "reader bob (by certificate) is on the list" in why) == (UNKNOWN, True), why


class Records:
    """A store that only remembers that it was written to."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    async def write(self, work: Callable[[Any], Any]) -> None:
        work(self)

    def execute(self, _: Any, rows: list[dict[str, Any]]) -> None:
        self.rows += rows


async def _send(node: str, command: pb.Command, _: float) -> pb.CommandResult:
    return pb.CommandResult(id=command.id, done=True, message=f"{node} looked")


async def test_orders_over_the_network_take_an_operators_certificate_whatever_the_call_says(
    tmp_path: Path, site: Site
) -> None:
    async def order(target: str, role: Role) -> pb.OperatorReply:
        request = pb.RunChecksRequest(nodes="n1", actor=pb.Actor(name="root", uid=0))
        async with secure_channel(target, site.credentials(role, "alice")) as opened:
            reply: pb.OperatorReply = await health_pb2_grpc.OperatorStub(opened).RunChecks(request)
            return reply

    records = Records()
    store = await _opened(tmp_path)
    server = NodeHealthServer(
        store, LastSeen(0.0), ServerSettings("127.0.0.1:0", "0.1.0"), TlsAuthenticator(site.settings())
    )
    server.operators = OperatorService(Any, _send, records, server.gate.operator)  # type: ignore[arg-type]
    await server.start()
    try:
        target = f"127.0.0.1:{server.port}"
        assert (await order(target, Role.OPERATOR)).message == "n1 looked"
        assert [(row["actor"], row["verb"]) for row in records.rows] == [("alice", "run-checks")]
        for role in (Role.READER, Role.NODE):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await order(target, role)
            assert error.value.code() == DENIED
        assert server.gate.refusals.total == 2
        assert len(records.rows) == 1
    finally:
        await server.stop(0.2)
        await store.close()


async def _opened(folder: Path) -> Store:
    store = Store(open_database(f"sqlite:///{folder / 'history.sqlite'}"))
    await store.open()
    return store


def test_only_an_operator_gives_orders_and_loopback_proves_nothing() -> None:
    may_operate(Identity("alice", "certificate", Role.OPERATOR))
    for identity in (
        Identity("n1", "certificate", Role.NODE),
        Identity("bob", "certificate", Role.READER),
        Identity("", "this machine"),
    ):
        with pytest.raises(Refused, match="may give no orders"):
            may_operate(identity)
    may_watch(Identity("", "this machine"))
    speaks_for(Identity("", "this machine"), "n1")


async def test_new_files_are_read_without_a_restart_and_wrong_ones_change_nothing(tmp_path: Path, site: Site) -> None:
    new = Site(tmp_path / "new")
    own = site.settings()
    async with (
        secure_serving(tmp_path, site) as (_, _, target),
        secure_agent(target, site.credentials(Role.NODE, "n1")) as stays,
    ):
        await stays.hello("n1")
        before = site.credentials(Role.NODE, "n9")
        own.key.write_bytes((new.folder / "controller/ctl.key").read_bytes())  # half of a change
        async with secure_agent(target, before) as stream:
            await stream.hello("n9")
        own.certificate.write_bytes((new.folder / "controller/ctl.crt").read_bytes())
        own.ca.write_bytes((new.folder / "ca.crt").read_bytes())
        async with secure_agent(target, new.credentials(Role.NODE, "n9")) as stream:
            await stream.hello("n9")
        assert (await refused(target, before, "n9"))[0] == UNAVAILABLE
        await Witness(stays).is_served()  # a stream that was open lives on


async def test_a_name_or_serial_that_is_denied_ends_its_stream_and_gets_no_new_one(tmp_path: Path, site: Site) -> None:
    own, other = site.credentials(Role.NODE, "n1"), site.credentials(Role.NODE, "n2")
    serial = next(f.holder.serial for f in site.pki.issued() if f.holder.name == "n1")
    async with (
        secure_serving(tmp_path, site) as (server, _, target),
        secure_agent(target, own) as first,
        secure_agent(target, other) as second,
    ):
        await first.hello("n1")
        await second.hello("n2")
        assert server.gate.deny((serial,)) == 1
        code, why = await first.status()
        assert code == UNKNOWN
        assert "node n1 (by certificate) is on the list identity.deny" in why
        assert (await refused(target, own))[0] == UNKNOWN
        await Witness(second).is_served()
        async with secure_agent(target, site.credentials(Role.NODE, "n1")) as renewed:
            await renewed.hello("n1")
        server.gate.deny(("n2",))
        assert (await second.status())[0] == UNKNOWN


async def test_a_stream_ends_when_its_certificate_does() -> None:
    door, over = Gate(ThisMachine(), AdmissionSettings(), ()), asyncio.get_running_loop().create_future()
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1.5)
    leave = door.guard(Identity("n1", "certificate", Role.NODE, "1", ends), over.set_result)
    assert not over.done()
    assert "certificate of n1 has expired" in str(await over)
    leave()
    leave = door.guard(Identity("n1", "certificate", Role.NODE, "1", ends + datetime.timedelta(days=4000)), print)
    leave()


def test_a_certificate_that_ends_soon_is_told_of_in_the_log() -> None:
    async def main() -> None:
        door = Gate(ThisMachine(), AdmissionSettings(), ())
        for name, days in (("n1", 20), ("n2", 13.5)):
            ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
            door.guard(Identity(name, "certificate", Role.NODE, "1", ends), print)()

    with capture_logs() as lines:
        run(main)
    assert [(line["event"], line["of"], line["in_days"]) for line in lines] == [("certificate ends soon", "n2", 13.5)]


@pytest.mark.parametrize(
    ("domain", "name", "node"),
    [
        ("", "n1", "n1"),
        ("example.org", "n1.example.org", "n1"),
        ("example.org", "n1", None),
        ("", "n1.example.org", None),
    ],
)
async def test_certificates_of_another_authority_may_name_nodes_with_a_domain(
    tmp_path: Path, site: Site, domain: str, name: str, node: str | None
) -> None:
    proof = TlsAuthenticator(site.settings(node_domain=domain))
    async with secure_serving(tmp_path, site, proof) as (_, _, target):
        own = site.credentials(Role.NODE, name)
        if node is None:
            assert (await refused(target, own))[0] in (UNKNOWN, DENIED)
        else:
            async with secure_agent(target, own) as stream:
                await stream.hello(node)


def test_a_controller_does_not_start_with_files_that_are_no_good(tmp_path: Path, site: Site) -> None:
    own = site.settings()
    own.key.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 0600"):
        TlsAuthenticator(own)
    own.key.chmod(0o600)
    own.ca.write_text("not a certificate")
    with pytest.raises(ConfigError, match=r"identity.ca: .*ca.crt: expected a certificate in PEM"):
        TlsAuthenticator(own)
    own.ca.unlink()
    with pytest.raises(ConfigError, match=r"ca.crt: No such file"):
        TlsAuthenticator(own)
    old = Site(tmp_path / "old")
    old.pki.issue(Role.CONTROLLER, "ctl", ("127.0.0.1",), 1, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), True)
    with pytest.raises(ConfigError, match="has expired"):
        TlsAuthenticator(old.settings())
