"""An authority with certificates for the tests of identities, and clients that show them."""

import contextlib
import datetime
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from fleet_client import AgentStream, acked, batch, serving

from nodetriage.controller.auth.certificate import Role
from nodetriage.controller.auth.identity import Authenticator
from nodetriage.controller.auth.identity_settings import IdentitySettings
from nodetriage.controller.auth.pki import Pki
from nodetriage.controller.auth.tls import TlsAuthenticator
from nodetriage.controller.rpc.server import NodeHealthServer
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2_grpc

_SOURCES = itertools.cycle(range(1, 250))
DAY = datetime.timedelta(days=1)


class Site:
    """A folder with an authority, and a certificate for whoever is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pki = folder, Pki(folder)
        self.pki.init(3650, _now(), force=False)
        self.pki.issue(Role.CONTROLLER, "ctl", ("127.0.0.1",), 365, _now(), force=False)

    def pair(self, role: Role, name: str, days: float = 30, made_before_days: float = 0) -> tuple[Path, Path]:
        """(certificate, key)"""
        made = _now() - made_before_days * DAY
        file = self.pki.issue(role, name, (), days, made, force=True)
        return file, file.with_name(f"{name}.key")

    def credentials(self, role: Role, name: str, trust: "Site | None" = None, **more: float) -> grpc.ChannelCredentials:
        """`trust`: the site whose controllers are believed, where it is not this one."""
        certificate, key = self.pair(role, name, **more)
        ca = (trust or self).folder / "ca.crt"
        return grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), certificate.read_bytes())

    def settings(self, **more: Any) -> IdentitySettings:
        own = self.folder / "controller"
        return IdentitySettings("tls", self.folder / "ca.crt", own / "ctl.crt", own / "ctl.key", **more)

    @property
    def toml(self) -> str:
        """The same for controller.toml."""
        own = self.settings()
        return f'[identity]\nkind = "tls"\nca = "{own.ca}"\ncertificate = "{own.certificate}"\nkey = "{own.key}"\n'


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@asynccontextmanager
async def secure_serving(
    folder: Path, site: Site, proof: Authenticator | None = None, **settings: Any
) -> AsyncIterator[tuple[NodeHealthServer, Store, str]]:
    proof = proof or TlsAuthenticator(site.settings())
    async with serving(folder, "127.0.0.1:0", (proof,), **settings) as served:
        yield served


@asynccontextmanager
async def secure_channel(
    target: str, credentials: grpc.ChannelCredentials, options: Mapping[str, Any] | None = None
) -> AsyncIterator[Any]:
    given = [("grpc.use_local_subchannel_pool", 1), *(options or {}).items()]
    async with grpc.aio.secure_channel(target, credentials, options=given) as opened:
        yield opened


@asynccontextmanager
async def secure_agent(
    target: str, credentials: grpc.ChannelCredentials, metadata: tuple[tuple[str, str], ...] = (), **options: Any
) -> AsyncIterator[AgentStream]:
    async with secure_channel(target, credentials, options) as opened:
        call = health_pb2_grpc.NodeHealthStub(opened).Connect(metadata=metadata or None)
        try:
            yield AgentStream(call)
        finally:
            call.cancel()


class Witness:
    """A good agent's stream: as long as it gets acks, the others have done no harm."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream, self._seq = stream, 0

    async def is_served(self) -> None:
        self._seq += 1
        await self._stream.send(batch(self._seq))
        [(_, first, last)] = acked(await self._stream.next())
        assert first <= self._seq <= last


def tls_socket(target: str, **client: Any) -> ssl.SSLSocket:
    """A TLS connection that believes anyone and shows nothing, unless `certfile` and `keyfile` are given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if client:
        context.load_cert_chain(**client)
    return context.wrap_socket(plain_socket(target))


def plain_socket(target: str) -> socket.socket:
    """From an address of its own: what one host has done must not count for the next."""
    host, _, port = target.rpartition(":")
    source = f"127.1.{next(_SOURCES)}.{os.getpid() % 250 + 1}"
    return socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end closes within the socket's timeout; what it says before is dropped."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while connection.recv(4096):
            pass
    return True
