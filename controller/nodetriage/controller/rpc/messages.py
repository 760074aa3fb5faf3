"""One gRPC call's messages: bytes to protobuf within the limits, and what a call that waits or is refused needs."""

import asyncio
import contextlib
from typing import NamedTuple, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from nodetriage.controller.auth.identity import Context
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.v1 import health_pb2

FIRST_MESSAGE_S = 1.0  # how long the server waits for a message of a client that it refuses

M = TypeVar("M", bound=Message)


class Received(NamedTuple):
    message: health_pb2.AgentMessage
    size: int  # bytes


async def next_message(context: Context, max_bytes: int) -> Received | None:
    """The agent's next message; None at the end of its stream. Raises Refused for one that is too long or malformed."""
    raw = await context.read()
    if raw is grpc.aio.EOF:
        return None
    if len(raw) > max_bytes:
        raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a message of {len(raw)} bytes; at most {max_bytes}")
    return Received(parse(health_pb2.AgentMessage, raw), len(raw))


async def read_hello(context: Context, limits: AdmissionSettings) -> health_pb2.Hello:
    """The first message of an agent's stream. Raises Refused where it is no hello."""
    try:
        async with asyncio.timeout(limits.hello_within_s):
            received = await next_message(context, limits.max_message_bytes)
    except TimeoutError:
        raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {limits.hello_within_s:g} s") from None
    message = received.message if received else None
    if message is None or message.WhichOneof("body") != "hello":
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a hello")
    return message.hello


def parse(kind: type[M], raw: bytes) -> M:
    """Raises Refused where the bytes are no message of this kind."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        reason = f"not a {kind.DESCRIPTOR.full_name}: {len(raw)} bytes"
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, reason) from None


async def confirm(context: Context) -> None:
    """Sends the initial metadata, so that a watcher knows that it is admitted before the first event.

    Completes even if cancelled: core takes metadata once, and grpc.aio would send them again with the status.
    """
    sending = asyncio.ensure_future(context.send_initial_metadata(()))
    try:
        await asyncio.shield(sending)
    finally:
        await asyncio.wait([sending])


async def read_briefly(context: Context) -> None:
    """Reads what a client that will be refused writes: else grpc.aio reports an internal error, not our reason."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_MESSAGE_S):
            await context.read()
