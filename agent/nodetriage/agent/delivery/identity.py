"""How this node proves its identity. Reads files and credentials anew at each connection: no key needs a restart."""

import asyncio
import hashlib
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from nodetriage.agent.delivery.connection import PLAINTEXT, Identity, Metadata, Refused, anonymous
from nodetriage.agent.settings.config import AgentSettings, IdentitySettings, node_name
from nodetriage.checks.model.settings import ConfigError
from nodetriage.service.address import is_address, is_local, is_unix
from nodetriage.service.claim import AGENT, CONTROLLER, METADATA_KEY, TTL_S, Claim
from nodetriage.service.munge import Munge, MungeError
from nodetriage.service.private import NotPrivate, read_private

T = TypeVar("T")
Identify = Callable[[str], Awaitable[Identity]]

ANSWER_LIMIT_S = 12.0  # libmunge gives up after 10 s on a munged that hangs


def identify_by(settings: AgentSettings) -> Identify:
    """What gives this node's identity for an address. Raises ConfigError for settings that cannot work."""
    own = settings.identity
    if wrong := [a for a in settings.controller.addresses if not is_address(a)]:
        raise ConfigError(f"controller.addresses: expected host:port or unix:/path, got {wrong[0]!r}")
    if own.kind == "tls":
        tls = TlsIdentity(own)
        tls.read()  # an error now reaches the operator; one at the first connection may not
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
        """Raises Refused where a file cannot be used any longer."""
        if is_unix(address):
            return Identity()
        try:
            return Identity(self.read(), self._settings.controller_name)
        except ConfigError as error:
            raise Refused(str(error)) from error

    def read(self) -> ssl.SSLContext:
        """From the files as they are now. Raises ConfigError: one line that names the file."""
        own = self._settings
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.set_alpn_protocols(["h2"])
        try:
            read_private(own.key)
        except NotPrivate as error:
            raise ConfigError(f"identity.key: {error}") from error
        except OSError as error:
            raise ConfigError(f"identity.key: {own.key}: {error.strerror}") from error
        try:
            tls.load_verify_locations(own.ca)
        except ssl.SSLError:
            raise ConfigError(f"identity.ca: {own.ca}: expected a certificate in PEM") from None
        except OSError as error:
            raise ConfigError(f"identity.ca: {own.ca}: {error.strerror}") from error
        try:
            tls.load_cert_chain(own.certificate, own.key, _no_passphrase)
        except (ssl.SSLError, ValueError):
            raise ConfigError(
                f"identity: expected a certificate in {own.certificate} and its key in {own.key}, both in PEM"
            ) from None
        except OSError as error:
            raise ConfigError(f"identity: {own.certificate}, {own.key}: {error.strerror}") from error
        return tls


def _no_passphrase() -> str:
    raise ValueError("a daemon cannot ask for a passphrase")


class MungeIdentity:
    """The cluster's munge key proves the identity of both ends; TLS keeps their messages secret.

    Any certificate of the server will do: the credential in its answer proves that the controller has it.
    """

    def __init__(self, settings: IdentitySettings, node: str) -> None:
        self._munge, self._node, self._controller_uid = Munge(settings.munge_socket), node, settings.controller_uid

    async def __call__(self, address: str) -> Identity:
        if is_unix(address):
            return Identity()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.set_alpn_protocols(["h2"])
        return Identity(tls, proof=MungeCredentials(self._munge, self._node, self._controller_uid))


class MungeCredentials:
    """The credentials of one connection. The claim names the server's certificate on it."""

    def __init__(self, munge: Munge, node: str, controller_uid: int) -> None:
        self._munge, self._node, self._controller_uid = munge, node, controller_uid
        self._nonce = secrets.token_hex(16)
        self._certificate = ""

    async def metadata(self, certificate: bytes) -> Metadata:
        """Raises Refused where munged gives no credential."""
        self._certificate = hashlib.sha256(certificate).hexdigest()
        claim = Claim(AGENT, self._node, self._certificate, self._nonce)
        try:
            return ((METADATA_KEY, await _in_time(self._munge.encode, claim.encoded(), TTL_S)),)
        except MungeError as error:
            raise Refused(f"munge: {error}") from error

    async def verify(self, answer: Mapping[str, str]) -> None:
        """Raises Refused unless the controller made the answer, for this connection."""
        credential = answer.get(METADATA_KEY)
        if credential is None:
            raise Refused("the other end did not prove with munge that it is the controller")
        try:
            found = await _in_time(self._munge.decode, credential)
        except MungeError as error:
            raise Refused(f"the other end's munge credential: {error}") from error
        if found.uid != self._controller_uid:
            raise Refused(
                f"the other end runs as uid {found.uid}; expected identity.controller_uid, {self._controller_uid}"
            )
        if found.payload != Claim(CONTROLLER, self._node, self._certificate, self._nonce).encoded():
            raise Refused("the other end's munge credential is not for this connection")


async def _in_time(call: Callable[..., T], *arguments: object) -> T:
    """Runs a blocking call in a thread. Raises TimeoutError; libmunge's own limit then ends the thread."""
    async with asyncio.timeout(ANSWER_LIMIT_S):
        return await asyncio.to_thread(call, *arguments)
