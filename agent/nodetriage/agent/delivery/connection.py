"""One connection to a controller. Only this module and http2.py know that the protocol is gRPC.

Messages go in and out; one exception with one line says how it ended. stream.py decides what to send and
when to try again; http2.py has the bytes.
"""

import asyncio
import contextlib
import hashlib
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import DecodeError

from nodetriage.agent.delivery.http2 import Call, CallEnded, open_call
from nodetriage.service.address import is_local, is_unix
from nodetriage.v1 import health_pb2 as pb

PATH = f"/{pb.DESCRIPTOR.services_by_name['NodeHealth'].full_name}/Connect"
PUSH_BACK = "grpc-retry-pushback-ms"  # as in gRPC's retry design (gRFC A6); negative: as late as possible
LONGEST_PUSH_BACK_S = 600.0
VERIFY_LIMIT_S = 20.0
LAST_WORD_LIMIT_S = 2.0
PLAINTEXT = (
    "plaintext is for loopback and Unix sockets only. Set [identity] kind to tls (certificates from "
    "nodetriagectl pki) or munge (the cluster's munge key): docs/identity.md"
)
Metadata = tuple[tuple[str, str], ...]


class Refused(Exception):
    """The agent does not make this connection. The text says what to set."""


class Ended(Exception):
    """The controller or the network ended the connection. `again_in_s`: the controller asked for this wait."""

    def __init__(self, why: str, again_in_s: float | None = None) -> None:
        super().__init__(why)
        self.again_in_s = again_in_s


class Credentials(Protocol):
    """Proves the identity of both ends of one connection."""

    async def metadata(self, certificate: bytes) -> Metadata:
        """Our proof for the server that has this certificate (DER). Raises Refused."""

    async def verify(self, answer: Mapping[str, str]) -> None:
        """Checks the server's first metadata, before the agent sends any message. Raises Refused."""


@dataclass(frozen=True, slots=True)
class Identity:
    """How this node proves its identity. Made for each connection, so that keys can change without a restart."""

    tls: ssl.SSLContext | None = None  # None: plaintext, only on this machine
    server_name: str = ""  # the name that the server's certificate must have; "": the address's host
    metadata: Metadata = ()
    proof: Credentials | None = None


async def anonymous(_: str) -> Identity:
    """For a controller on the same machine."""
    return Identity()


class Connection:
    """Both directions of one Connect call. One task may read while another writes."""

    def __init__(self, call: Call, peer: str = "") -> None:
        self._call = call
        self.peer = peer  # the other end: its address, and how it showed that it is a controller

    async def write(self, message: pb.AgentMessage) -> bool:
        """Returns when the message is on its way, which flow control can delay. False if the call has ended; then
        `read` raises why."""
        try:
            await self._call.send(message.SerializeToString())
        except CallEnded:
            return False
        return True

    async def read(self) -> pb.ControllerMessage | None:
        """The next message; None after the controller closed its side. Raises Ended."""
        try:
            return pb.ControllerMessage.FromString(await self._call.receive())
        except DecodeError:
            raise Ended("expected a ControllerMessage from the controller, got other bytes") from None
        except CallEnded as end:
            if end.trailers.get("grpc-status") == "0":
                return None
            raise _ended(end) from None


@asynccontextmanager
async def connect(address: str, identity: Identity) -> AsyncIterator[Connection]:
    """Connects. The first `read` shows whether the controller accepts this node.

    Raises Refused for plaintext that would leave the machine or a controller that does not prove its identity, Ended or
    OSError where there is no connection.
    """
    if identity.tls is None and not is_local(address):
        raise Refused(f"{address}: {PLAINTEXT}")
    try:
        call = await open_call(address, identity.tls, identity.server_name)
    except (ssl.SSLError, ValueError) as error:
        raise Ended(str(error)) from None
    try:
        metadata = identity.metadata
        if identity.proof:
            metadata += await identity.proof.metadata(call.certificate)
        connection = Connection(call, _peer(address, identity, call.certificate))
        try:
            call.begin(PATH, "localhost" if is_unix(address) else address, metadata)
            if identity.proof:
                await _verify(connection, identity.proof, call)
        except CallEnded as end:
            raise _ended(end) from None
        yield connection
    finally:
        await call.close()


def _peer(address: str, identity: Identity, certificate: bytes) -> str:
    if identity.tls is None:
        return f"{address}, on this machine"
    how = "munge" if identity.proof else f"tls as {identity.server_name or address.rpartition(':')[0]}"
    return f"{address}, {how}, certificate sha256 {hashlib.sha256(certificate).hexdigest()}"


async def _verify(connection: Connection, proof: Credentials, call: Call) -> None:
    """Raises Ended where the controller refused this node, Refused where it did not prove its identity."""
    try:
        async with asyncio.timeout(VERIFY_LIMIT_S):
            await proof.verify(await call.answer())
    except Refused:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_LIMIT_S):
                await connection.read()
        raise


def _ended(end: CallEnded) -> Ended:
    return Ended(str(end), pushed_back_s(end.trailers))


def pushed_back_s(trailers: Mapping[str, str]) -> float | None:
    """The wait that the server asked for, with some jitter; None without such a wish."""
    try:
        wait_ms = int(trailers[PUSH_BACK])
    except (KeyError, ValueError):
        return None
    wait_s = wait_ms / 1000 if wait_ms >= 0 else LONGEST_PUSH_BACK_S
    return min(wait_s, LONGEST_PUSH_BACK_S) * random.uniform(1.0, 1.2)
