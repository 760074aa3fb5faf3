"""One HTTP/2 connection with one gRPC call that streams both ways. h2 keeps the protocol's state, asyncio does TLS.

gRPC over HTTP/2 (the gRPC project's PROTOCOL-HTTP2.md) adds little: a POST, five bytes before each message, the status
in the trailers. gRPC's own library costs an idle agent more than all checks do: docs/decisions/0021.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from nodetriage.service.address import host_of, is_unix

MESSAGE_LIMIT_BYTES = 4 << 20
CONNECT_LIMIT_S = 10.0
SILENCE_S = 30.0  # after so long without a byte from the peer, the next message brings a ping
PING_LIMIT_S = 10.0
SENT_LIMIT_S = 30.0  # for the peer's kernel to confirm data, and for a peer that takes no more data
# https://grpc.github.io/grpc/core/md_doc_statuscodes.html
STATUS = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_KIND_AT, _SETTINGS = 3, b"\4"  # of a frame; the first one has the server's settings (RFC 9113, 3.4)
_PREFIX = struct.Struct(">BI")  # compressed or not, length


class CallEnded(Exception):
    """The call is over. `trailers` are the server's last metadata; empty where the connection broke."""

    def __init__(self, why: str, trailers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.trailers = trailers or {}


class Call(asyncio.Protocol):
    """A connection, and after `begin` its one call. One task may receive while another sends."""

    def __init__(self) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._transport: asyncio.Transport
        self._stream = 0
        self._partial = bytearray()
        self._messages: deque[bytes] = deque()
        self._news = asyncio.Event()  # for the receiver
        self._room = asyncio.Event()  # for the sender
        self._lost = asyncio.Event()  # set when the connection has ended
        self._paused = False
        self._greeted = False  # a server's first frame has come
        self._answer: dict[str, str] | None = None  # first metadata
        self._trailers: dict[str, str] = {}
        self._end: CallEnded | None = None
        self._received_s = self._pinged_s = time.monotonic()

    @property
    def certificate(self) -> bytes:
        """The server's certificate (DER); empty without TLS."""
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return (tls and tls.getpeercert(binary_form=True)) or b""

    def begin(self, path: str, authority: str, metadata: Iterable[tuple[str, str]]) -> None:
        """Raises CallEnded."""
        if self._end:
            raise self._end
        self._stream = self._h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "https" if self.certificate else "http"),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "nodetriage"),
            *metadata,
        ]
        self._h2.send_headers(self._stream, headers)
        self._flush()

    async def answer(self) -> Mapping[str, str]:
        """The server's first metadata. Raises CallEnded."""
        while self._answer is None:
            await self._wait_for_news()
        return self._answer

    async def receive(self) -> bytes:
        """The next message. Raises CallEnded."""
        while not self._messages:
            await self._wait_for_news()
        return self._messages.popleft()

    async def send(self, message: bytes) -> None:
        """Returns when all of it is on its way, which flow control can delay. Raises CallEnded."""
        self._ping_if_silent()
        rest = memoryview(_PREFIX.pack(0, len(message)) + message)
        while rest:
            if self._end:
                raise self._end
            room = min(self._h2.local_flow_control_window(self._stream), self._h2.max_outbound_frame_size)
            if room <= 0 or self._paused:
                await self._wait_for_room()
                continue
            self._h2.send_data(self._stream, bytes(rest[:room]))
            rest = rest[room:]
            self._flush()

    async def close(self) -> None:
        """Cancels the call and ends the connection."""
        if self._end is None and self._stream:
            self._h2.reset_stream(self._stream, ErrorCodes.CANCEL)
            self._flush()
        self._finish("the agent closed the connection")
        await self._lost.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._received_s = time.monotonic()
        if not self._greeted and data[_KIND_AT : _KIND_AT + 1] != _SETTINGS:
            self._finish(f"expected HTTP/2, got {data[:20]!r}")  # h2 would wait for the rest of a long frame
            return
        self._greeted = True
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except ProtocolError as error:
            self._finish(f"the controller broke the rules of HTTP/2: {error or type(error).__name__}")
        self._flush()
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(f"the connection broke: {exc}" if exc else "the connection was closed")
        self._lost.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._room.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._partial += event.data or b""
            if event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, self._stream)
            self._cut_messages()
        elif isinstance(event, ResponseReceived):
            self._take_answer(_texts(event.headers))
        elif isinstance(event, TrailersReceived):
            self._trailers = _texts(event.headers)
        elif isinstance(event, StreamEnded):
            self._finish(*_status(self._trailers))
        elif isinstance(event, StreamReset):
            self._finish(f"the controller broke the call off (HTTP/2 error {event.error_code})")
        elif isinstance(event, ConnectionTerminated):
            said = (event.additional_data or b"").decode("utf-8", "replace")
            self._finish(f"the controller is going away ({said or 'HTTP/2 error'} {event.error_code})")

    def _take_answer(self, headers: dict[str, str]) -> None:
        if "grpc-status" in headers:  # a refusal has no other trailers
            self._trailers = headers
        elif headers.get(":status") != "200" or not headers.get("content-type", "").startswith("application/grpc"):
            self._finish(f"expected gRPC, got HTTP status {headers.get(':status')}, {headers.get('content-type')}")
        else:
            self._answer = headers
            self._news.set()

    def _cut_messages(self) -> None:
        while len(self._partial) >= _PREFIX.size:
            compressed, length = _PREFIX.unpack_from(self._partial)
            if compressed or length > MESSAGE_LIMIT_BYTES:
                got = f"{length} bytes, {'' if compressed else 'not '}compressed"
                self._finish(f"expected at most {MESSAGE_LIMIT_BYTES} bytes, not compressed; got a message of {got}")
                return
            if len(self._partial) < _PREFIX.size + length:
                return
            self._messages.append(bytes(self._partial[_PREFIX.size : _PREFIX.size + length]))
            del self._partial[: _PREFIX.size + length]
            self._news.set()

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)

    def _finish(self, why: str, trailers: Mapping[str, str] | None = None) -> None:
        """Ends the call; the first reason counts. Messages that have arrived can still be received."""
        self._end = self._end or CallEnded(why, trailers)
        self._news.set()
        self._room.set()
        self._transport.abort()  # gRPC's servers do not answer the end of TLS, for which close() would wait

    async def _wait_for_news(self) -> None:
        if self._end:
            raise self._end
        self._news.clear()
        await self._news.wait()

    async def _wait_for_room(self) -> None:
        self._room.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SENT_LIMIT_S):
                await self._room.wait()
            return
        self._finish(f"the controller took no data for {SENT_LIMIT_S:.0f} s")

    def _ping_if_silent(self) -> None:
        """Finds out while sending whether the peer still lives. It needs no timer, so an idle agent sleeps on."""
        now_s = time.monotonic()
        if self._end or now_s - self._received_s < SILENCE_S:
            return
        if self._pinged_s <= self._received_s:
            self._pinged_s = now_s
            self._h2.ping(b"nodetria")
        elif now_s - self._pinged_s > PING_LIMIT_S:
            self._finish(f"the controller did not answer a ping for {now_s - self._pinged_s:.0f} s")


async def open_call(address: str, tls: ssl.SSLContext | None, server_name: str = "") -> Call:
    """Connects. `address` as in service.address; `server_name` is the name in the certificate, "" the address's host.

    Raises OSError (such as ssl.SSLError), TimeoutError, or ValueError for what is not an address.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_LIMIT_S):
        if is_unix(address):
            kind, _, path = address.partition(":")
            at = f"\0{path}" if kind == "unix-abstract" else path.removeprefix("//")
            _, call = await loop.create_unix_connection(Call, at)
            return call
        port = address.rpartition(":")[2]
        if not port.isdecimal():
            raise ValueError(f"{address}: expected HOST:PORT")
        name = (server_name or host_of(address)) if tls else None
        transport, call = await loop.create_connection(
            Call, host_of(address), int(port), ssl=tls, server_hostname=name, happy_eyeballs_delay=0.25
        )
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(SENT_LIMIT_S * 1000))
    return call


def _texts(headers: Iterable[tuple[str | bytes, str | bytes]] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers or ()}


def _status(trailers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    number = trailers.get("grpc-status", "")
    known = number.isdecimal() and int(number) < len(STATUS)
    name = STATUS[int(number)] if known else f"unknown status ({number or 'none'})"
    return f"{name}: {unquote(trailers.get('grpc-message', ''))}", trailers
