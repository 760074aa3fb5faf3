"""How this node shows who it is. Files and credentials are read afresh at each connection: no key needs a restart."""

import asyncio
import contextlib
import hashlib
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import grpc

from nodetriage.agent.config import AgentSettings, IdentitySettings, node_name
from nodetriage.agent.connection import PLAINTEXT, Identity, Refused, anonymous
from nodetriage.checks.settings import ConfigError
from nodetriage.service.address import host_of, is_local, is_unix
from nodetriage.service.claim import AGENT, CONTROLLER, METADATA_KEY, SERVER_NAME, TTL_S, Claim
from nodetriage.service.munge import Munge, MungeError
from nodetriage.service.private import NotPrivate, read_private

T = TypeVar("T")
Identify = Callable[[str], Awaitable[Identity]]

ANSWER_LIMIT_S = 12.0  # libmunge gives up on a munged that hangs after 10 s


def identify_by(settings: AgentSettings) -> Identify:
    """What gives this node's identity for an address. Raises ConfigError where it could not be used."""
    own = settings.identity
    if own.kind == "tls":
        tls = TlsIdentity(own)
        tls.read()  # now rather than at the first connection, which nobody may look at
        return tls
    if own.kind == "munge":
        try:
            return MungeIdentity(own, node_name(settings.agent.node))
        except MungeError as error:
            raise ConfigError(f"identity.kind: munge: {error}") from error
    if beyond := [a for a in settings.controller.addresses if not is_local(a)]:
        raise ConfigError(f"controller.addresses: {beyond[0]}: {PLAINTEXT}")
    return anonymous


class TlsIdentity:
    """A certificate whose DNS name is the node's name."""

    def __init__(self, settings: IdentitySettings) -> None:
        self._settings = settings

    async def __call__(self, address: str) -> Identity:
        """Raises Refused where a file has become unusable."""
        if is_unix(address):
            return Identity()
        try:
            credentials = grpc.ssl_channel_credentials(*self.read())
        except ConfigError as error:
            raise Refused(str(error)) from error
        name = self._settings.controller_name
        return Identity(credentials, options=(("grpc.ssl_target_name_override", name),) if name else ())

    def read(self) -> tuple[bytes, bytes, bytes]:
        """(authorities, key, certificate) in PEM. Raises ConfigError: one line that names the file."""
        own = self._settings
        authorities, certificate = _read(own.ca), _read(own.certificate)
        try:
            key = read_private(own.key)
        except NotPrivate as error:
            raise ConfigError(f"identity.key: {error}") from error
        except OSError as error:
            raise ConfigError(f"identity.key: {own.key}: {error.strerror}") from error
        try:
            # OpenSSL compares the two; the context itself is not used.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(own.certificate, own.key, _no_passphrase)
        except (ssl.SSLError, ValueError):
            raise ConfigError(f"identity: {own.certificate} and {own.key} are not a pair in PEM") from None
        except OSError as error:
            raise ConfigError(f"identity: {own.certificate}, {own.key}: {error.strerror}") from error
        return authorities, key, certificate


def _no_passphrase() -> str:
    raise ValueError("nobody is here to type one")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"identity: {path}: {error.strerror}") from error


class MungeIdentity:
    """The cluster's munge key vouches for both ends; TLS keeps what they say to themselves.

    The server's certificate is taken as it comes; that it is the controller's, the credential in its answer says.
    """

    def __init__(self, settings: IdentitySettings, node: str) -> None:
        self._munge, self._node, self._controller_uid = Munge(settings.munge_socket), node, settings.controller_uid

    async def __call__(self, address: str) -> Identity:
        """Raises Refused where munged does not help, OSError or TimeoutError where nobody listens."""
        if is_unix(address):
            return Identity()
        certificate = await server_certificate(address)
        claim = Claim(AGENT, self._node, hashlib.sha256(certificate).hexdigest(), secrets.token_hex(16))
        try:
            credential = await _in_time(self._munge.encode, claim.encoded(), TTL_S)
        except MungeError as error:
            raise Refused(f"munge: {error}") from error
        return Identity(
            grpc.ssl_channel_credentials(ssl.DER_cert_to_PEM_cert(certificate).encode()),
            metadata=((METADATA_KEY, credential),),
            options=(("grpc.ssl_target_name_override", SERVER_NAME),),
            verify=lambda metadata: self._verify(claim, metadata),
        )

    async def _verify(self, ours: Claim, metadata: Mapping[str, str | bytes]) -> None:
        """Raises Refused unless the answer is the controller's, to this very connection."""
        answer = metadata.get(METADATA_KEY)
        if not isinstance(answer, str):
            raise Refused("the other end did not show by munge that it is the controller")
        try:
            found = await _in_time(self._munge.decode, answer)
        except MungeError as error:
            raise Refused(f"the other end's munge credential: {error}") from error
        if found.uid != self._controller_uid:
            raise Refused(f"the other end runs as uid {found.uid}, not as identity.controller_uid")
        if found.payload != Claim(CONTROLLER, ours.node, ours.certificate, ours.nonce).encoded():
            raise Refused("the other end's munge credential is not for this connection")


async def _in_time(call: Callable[..., T], *arguments: object) -> T:
    """Runs a call that blocks in a thread. Raises TimeoutError, leaving the thread to libmunge's own limit."""
    async with asyncio.timeout(ANSWER_LIMIT_S):
        return await asyncio.to_thread(call, *arguments)


async def server_certificate(address: str) -> bytes:
    """The certificate (DER) that a server shows. Believes nothing: no name and no authority is looked at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])  # gRPC ends the handshake otherwise
    port = address.rpartition(":")[2]
    if not port.isdecimal():
        raise Refused(f"{address}: expected HOST:PORT")
    async with asyncio.timeout(ANSWER_LIMIT_S):
        _, writer = await asyncio.open_connection(host_of(address), int(port), ssl=context)
    try:
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()
    if not found:
        raise Refused(f"{address}: shows no certificate")
    return found
