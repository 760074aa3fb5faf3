"""An agent's side of the wire without gRPC's library: HTTP/2 frames over asyncio, one Connect call a connection.

For load generators alone: ten thousand clients of the real library would need more of the machine than the controller
that is measured. What goes over the connection is the same: RFC 9113 frames, gRPC's length-prefixed messages (PROTOCOL-
HTTP2 of the gRPC project). Headers are sent as literals (RFC 7541, 6.2.2) and those of the answer are not read.
"""

import asyncio
import struct
from collections import deque

from nodetriage.v1 import health_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS, PADDED = 4, 8
INITIAL_WINDOW_SIZE = 4  # the number of the setting
OUR_WINDOW_BYTES = 1 << 30  # never used up by acks, so that none need be given back
STREAM = 1
FRAME_LIMIT_BYTES = 16_384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Without indexing; `name` is an index of the static table or the name itself."""
    return name + bytes([len(value)]) + value


OPENING = (
    PREFACE
    + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, OUR_WINDOW_BYTES))
    + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", OUR_WINDOW_BYTES))
    + frame(
        HEADERS,
        END_HEADERS,
        STREAM,
        b"\x83\x86"  # :method POST, :scheme http
        + _literal(b"\x04", b"/nodetriage.v1.NodeHealth/Connect")
        + _literal(b"\x01", b"controller")
        + _literal(b"\x0f\x10", b"application/grpc")
        + _literal(b"\x00\x02te", b"trailers"),
    )
)


class Ended(Exception):
    """The controller or the network ended the call."""


class Wire(asyncio.Protocol):
    """One connection with its one call. `send` takes a serialized AgentMessage, `receive` gives messages in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message = bytearray()
        self._inbox: deque[pb.ControllerMessage] = deque()
        self._outbox: deque[bytes] = deque()
        self._windows = {0: 65_535, STREAM: 65_535}  # what the peer still takes
        self._initial = 65_535
        self._wanted: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self.ended = ""

    @classmethod
    async def connect(cls, host: str, port: int) -> "Wire":
        _, wire = await asyncio.get_running_loop().create_connection(cls, host, port)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(OPENING)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc or 'closed'}")

    def send(self, message: bytes) -> None:
        """Never waits: what the peer's window does not let through stays here."""
        if self.ended:
            raise Ended(self.ended)
        whole = b"\x00" + struct.pack(">I", len(message)) + message
        self._outbox.extend(whole[i : i + FRAME_LIMIT_BYTES] for i in range(0, len(whole), FRAME_LIMIT_BYTES))
        self._flush()

    async def receive(self) -> pb.ControllerMessage:
        """Raises Ended."""
        while not self._inbox:
            if self.ended:
                raise Ended(self.ended)
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        return self._inbox.popleft()

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 9:
            length = int.from_bytes(self._buffer[at : at + 3], "big")
            if len(self._buffer) - at < 9 + length:
                break
            kind, flags = self._buffer[at + 3], self._buffer[at + 4]
            stream = int.from_bytes(self._buffer[at + 5 : at + 9], "big")
            self._take(kind, flags, stream, bytes(self._buffer[at + 9 : at + 9 + length]))
            at += 9 + length
        del self._buffer[:at]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._message += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
            self._cut_messages()
        elif kind == SETTINGS and not flags & ACK:
            self._settle(payload)
            self._transport.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(payload, "big")
            self._flush()
        elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
            self._end(f"frame {kind}: {payload!r}")

    def _settle(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            number, value = struct.unpack_from(">HI", payload, at)
            if number == INITIAL_WINDOW_SIZE:
                self._windows[STREAM] += value - self._initial
                self._initial = value
        self._flush()

    def _cut_messages(self) -> None:
        while len(self._message) >= 5 and len(self._message) >= (end := 5 + int.from_bytes(self._message[1:5], "big")):
            self._inbox.append(pb.ControllerMessage.FromString(bytes(self._message[5:end])))
            del self._message[:end]
        self._tell()

    def _flush(self) -> None:
        while self._outbox and len(self._outbox[0]) <= min(self._windows.values()):
            payload = self._outbox.popleft()
            for stream in self._windows:
                self._windows[stream] -= len(payload)
            self._transport.write(frame(DATA, 0, STREAM, payload))

    def _end(self, why: str) -> None:
        self.ended = self.ended or why
        self._tell()

    def _tell(self) -> None:
        if self._wanted and not self._wanted.done():
            self._wanted.set_result(None)
