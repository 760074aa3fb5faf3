"""One connection to a controller: the only place of the agent that knows gRPC.

Messages go in and out; how it ended is one exception with one line of why. stream.py decides what to say and when to
try again.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from nodetriage.service.address import is_local
from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

PUSH_BACK = "grpc-retry-pushback-ms"  # as in gRPC's retry design (gRFC A6); negative: as late as possible
LONGEST_PUSH_BACK_S = 600.0
VERIFY_LIMIT_S = 20.0
LAST_WORD_LIMIT_S = 2.0
PLAINTEXT = (
    "plaintext is for loopback and Unix sockets only. Set [identity] kind to tls (certificates from "
    "nodetriagectl pki) or munge (the cluster's munge key): docs/identity.md"
)
MESSAGE_LIMIT_BYTES = 4 << 20
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # http_proxy is for the world outside: the controller is on this side of it
)


class Refused(Exception):
    """This connection may not be made; the text says what to set."""


class Ended(Exception):
    """The controller or the network ended the connection. `again_in_s` is the wait that the controller asked for."""

    def __init__(self, why: str, again_in_s: float | None = None) -> None:
        super().__init__(why)
        self.again_in_s = again_in_s


@dataclass(frozen=True, slots=True)
class Identity:
    """How this node shows who it is. Asked for at each connection, so that keys can change without a restart."""

    credentials: grpc.ChannelCredentials | None = None  # None: plaintext, on this machine only
    metadata: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()  # of the channel
    # Looks at the controller's first metadata, before anything is said to it. Raises Refused.
    verify: Callable[[Mapping[str, str | bytes]], Awaitable[None]] | None = None


async def anonymous(_: str) -> Identity:
    """For a controller on the same machine."""
    return Identity()


class Connection:
    """Both directions of one Connect call. One task may read while another writes."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, message: pb.AgentMessage) -> bool:
        """Returns when the message may leave, which flow control can delay; False if the call has ended: `read` tells
        why."""
        try:
            await self._call.write(message)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):  # had ended before, ended meanwhile
            return False
        return True

    async def read(self) -> pb.ControllerMessage | None:
        """The next message; None after the controller closed its side. Raises Ended."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _ended(error) from None
        return None if message is grpc.aio.EOF else message


@asynccontextmanager
async def connect(address: str, identity: Identity) -> AsyncIterator[Connection]:
    """Whether anyone is there shows at the first `read`. Raises Refused for plaintext that would leave the machine."""
    async with open_channel(address, identity) as channel:
        stub: Any = health_pb2_grpc.NodeHealthStub(channel)  # type: ignore[no-untyped-call] # generated
        call = stub.Connect(metadata=identity.metadata or None)
        try:
            connection = Connection(call)
            if identity.verify is not None:
                await _verify(connection, identity.verify, call)
            yield connection
        finally:
            call.cancel()


async def _verify(connection: Connection, verify: Callable[..., Awaitable[None]], call: Any) -> None:
    """Raises Ended where the controller sent us away, rather than that it did not show who it is."""
    try:
        async with asyncio.timeout(VERIFY_LIMIT_S):
            await verify(dict(await call.initial_metadata() or ()))
    except Refused:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_LIMIT_S):
                await connection.read()
        raise


def open_channel(address: str, identity: Identity) -> grpc.aio.Channel:
    """Raises Refused for plaintext that would leave the machine."""
    if identity.credentials is not None:
        return grpc.aio.secure_channel(address, identity.credentials, options=(*_OPTIONS, *identity.options))
    if not is_local(address):
        raise Refused(f"{address}: {PLAINTEXT}")
    return grpc.aio.insecure_channel(address, options=_OPTIONS)


def _ended(error: grpc.aio.AioRpcError) -> Ended:
    return Ended(f"{error.code().name}: {error.details()}", pushed_back_s(error.trailing_metadata() or ()))


def pushed_back_s(metadata: Iterable[tuple[str, str | bytes]]) -> float | None:
    """The wait that the server asked for, with a little jitter; None if it asked for none."""
    for key, text in metadata:
        if key == PUSH_BACK:
            try:
                wait_ms = int(text)
            except ValueError:
                return None
            wait_s = wait_ms / 1000 if wait_ms >= 0 else LONGEST_PUSH_BACK_S
            return min(wait_s, LONGEST_PUSH_BACK_S) * random.uniform(1.0, 1.2)
    return None
