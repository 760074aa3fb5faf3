"""One call over HTTP/2, against servers that do what gRPC's never would: every end is said, none is waited for."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, PingReceived, RequestReceived
from h2.settings import SettingCodes, Settings

from nodetriage.agent.delivery import http2
from nodetriage.agent.delivery.http2 import CallEnded, open_call

ANSWER = [(":status", "200"), ("content-type", "application/grpc")]


def message(body: bytes, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(body)) + body


class Peer(asyncio.Protocol):
    """The server's side of one connection; `play` is called with each event."""

    def __init__(self, play: Callable[["Peer", Event], None], settings: dict[SettingCodes, int]) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.taken = bytearray()
        self.credits = True  # gives back what was taken of the window
        self._play = play
        self._settings = settings

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.h2.local_settings = Settings(client=False, initial_values=self._settings)
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, DataReceived):
                self.taken += event.data or b""
                if self.credits and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, 1)
            self._play(self, event)
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())


Play = Callable[[Peer, Event], None]


def answered(then: Callable[[Peer], None] = lambda peer: None) -> Play:
    """Lets the call begin, and does something with it."""

    def play(peer: Peer, event: Event) -> None:
        if isinstance(event, RequestReceived):
            peer.h2.send_headers(1, ANSWER)
            then(peer)

    return play


class Serving(Protocol):
    transport: Any


P = TypeVar("P", bound=Serving)


@asynccontextmanager
async def listening(folder: Path, factory: Callable[[], P]) -> AsyncIterator[tuple[str, list[P]]]:
    """The address, and the other ends of the connections to it."""
    made: list[P] = []

    def make() -> Any:
        made.append(factory())
        return made[-1]

    server = await asyncio.get_running_loop().create_unix_server(make, folder / "peer.sock")
    try:
        yield f"unix:{folder}/peer.sock", made
    finally:
        server.close()
        for one in made:
            one.transport.abort()
        await asyncio.sleep(0)  # in which transports are closed


def call_of(
    folder: Path,
    play: Play,
    body: Callable[[http2.Call, list[Peer]], Awaitable[None]],
    settings: dict[SettingCodes, int] | None = None,
) -> None:
    """Runs `body` with a call to a peer that plays."""

    async def main() -> None:
        async with listening(folder, lambda: Peer(play, settings or {})) as (address, peers):
            call = await open_call(address, None)
            try:
                call.begin("/a.B/C", "localhost", (("key", "value"),))
                await body(call, peers)
            finally:
                await call.close()

    asyncio.run(asyncio.wait_for(main(), 60))


async def ends(waiting: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(CallEnded) as ended:
        await waiting
    return str(ended.value)


def test_messages_come_whole_however_they_are_cut(tmp_path: Path) -> None:
    bodies = [b"", b"a", b"b" * 70_000, b"c" * 3]

    def small(peer: Peer) -> None:
        peer.h2.send_data(1, b"".join(map(message, bodies[:2]))[:3])
        peer.h2.send_data(1, b"".join(map(message, bodies[:2]))[3:])

    async def read_two(call: http2.Call, _: list[Peer]) -> None:
        assert [await call.receive(), await call.receive()] == bodies[:2]

    call_of(tmp_path, answered(small), read_two)
    (tmp_path / "more").mkdir()
    later: list[bytes] = []

    def feed(peer: Peer, event: Event) -> None:
        """As much as the window lets through, the rest when it opens."""
        if isinstance(event, RequestReceived):
            peer.h2.send_headers(1, ANSWER)
            later.append(b"".join(map(message, bodies)))
        while later and later[0] and (room := min(peer.h2.local_flow_control_window(1), 7001)) > 0:
            peer.h2.send_data(1, later[0][:room])
            later[0] = later[0][room:]

    async def read_all(call: http2.Call, _: list[Peer]) -> None:
        assert [len(await call.receive()) for _ in bodies] == [len(b) for b in bodies]

    call_of(tmp_path / "more", feed, read_all)


def test_a_window_that_is_full_delays_the_sender_and_no_byte_is_lost(tmp_path: Path) -> None:
    body = bytes(range(256)) * 1000

    def play(peer: Peer, event: Event) -> None:
        peer.credits = False
        answered()(peer, event)

    async def send(call: http2.Call, peers: list[Peer]) -> None:
        await call.answer()  # by then the peer's window is known
        sending = asyncio.create_task(call.send(body))
        while len(peers[0].taken) < 1000:  # noqa: ASYNC110 the peer cannot know what is waited for
            await asyncio.sleep(0)
        done, _ = await asyncio.wait([sending], timeout=0.1)
        assert (len(peers[0].taken), done) == (1000, set())
        given = 0
        while not sending.done() or len(peers[0].taken) < len(body) + 5:
            if len(peers[0].taken) > given:
                peers[0].h2.acknowledge_received_data(len(peers[0].taken) - given, 1)
                given = len(peers[0].taken)
                peers[0].flush()
            await asyncio.sleep(0)
        whole = bytes(peers[0].taken) == message(body)
        assert whole  # without pytest's picture of half a megabyte

    call_of(tmp_path, play, send, {SettingCodes.INITIAL_WINDOW_SIZE: 1000})


def test_a_peer_that_takes_nothing_more_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "SENT_LIMIT_S", 0.2)

    def play(peer: Peer, event: Event) -> None:
        peer.credits = False
        answered()(peer, event)

    async def body(call: http2.Call, _: list[Peer]) -> None:
        await call.answer()
        assert await ends(call.send(b"x" * 5000)) == "the controller took no data for 0 s"

    call_of(tmp_path, play, body, {SettingCodes.INITIAL_WINDOW_SIZE: 1000})


def test_a_peer_that_answers_no_ping_is_given_up_and_one_that_does_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "SILENCE_S", 0.05)
    pings: list[bytes] = []

    def play(peer: Peer, event: Event) -> None:
        answered()(peer, event)
        if isinstance(event, PingReceived):
            pings.append(event.ping_data or b"")

    async def kept(call: http2.Call, _: list[Peer]) -> None:
        await call.answer()
        while len(pings) < 3:
            await call.send(b"beat")
            await asyncio.sleep(0.02)

    call_of(tmp_path, play, kept)

    async def given_up(call: http2.Call, peers: list[Peer]) -> None:
        await call.answer()
        peers[0].transport.pause_reading()

        async def beat() -> None:
            while True:
                await call.send(b"beat")
                await asyncio.sleep(0.02)

        assert (await ends(beat())).startswith("the controller did not answer a ping for")

    (tmp_path / "2").mkdir()
    monkeypatch.setattr(http2, "PING_LIMIT_S", 0.1)
    call_of(tmp_path / "2", play, given_up)


def status(number: str, text: str = "") -> Callable[[Peer], None]:
    trailers = [("grpc-status", number), ("grpc-message", text), ("grpc-retry-pushback-ms", "700")]
    return lambda peer: peer.h2.send_headers(1, trailers, end_stream=True)


TOO_LONG = "expected at most 4194304 bytes, not compressed; got a message of {} compressed"


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (status("14", "back in a minute: 5%25"), "UNAVAILABLE: back in a minute: 5%"),
        (status("0"), "OK: "),
        (status("99"), "unknown status (99): "),
        (lambda peer: peer.h2.reset_stream(1, 8), "the controller broke the call off (HTTP/2 error 8)"),
        (
            lambda peer: peer.h2.close_connection(11, b"too_many_pings"),
            "the controller is going away (too_many_pings 11)",
        ),
        (lambda peer: peer.transport.close(), "the connection was closed"),
        (lambda peer: peer.transport.write(b"\0\0\1\0\0\0\0\0\7x"), "the controller broke the rules of HTTP/2"),
        (lambda peer: peer.h2.send_data(1, b"\0\x7f\xff\xff\xff"), TOO_LONG.format("2147483647 bytes, not")),
        (lambda peer: peer.h2.send_data(1, message(b"x", compressed=1)), TOO_LONG.format("1 bytes,")),
    ],
)
def test_every_end_has_one_line_that_says_why(tmp_path: Path, then: Callable[[Peer], None], why: str) -> None:
    async def body(call: http2.Call, _: list[Peer]) -> None:
        assert (await ends(call.receive())).startswith(why)
        assert (await ends(call.send(b"too late"))).startswith(why)

    call_of(tmp_path, answered(then), body)


def test_what_came_before_the_end_is_still_received(tmp_path: Path) -> None:
    def then(peer: Peer) -> None:
        peer.h2.send_data(1, message(b"last word"))
        status("14", "bye")(peer)

    async def body(call: http2.Call, _: list[Peer]) -> None:
        assert await call.receive() == b"last word"
        with pytest.raises(CallEnded, match="UNAVAILABLE: bye") as ended:
            await call.receive()
        assert ended.value.trailers["grpc-retry-pushback-ms"] == "700"

    call_of(tmp_path, answered(then), body)


def test_a_refusal_without_an_answer_is_understood(tmp_path: Path) -> None:
    def play(peer: Peer, event: Event) -> None:
        if isinstance(event, RequestReceived):
            assert ("key", "value") in (event.headers or [])
            peer.h2.send_headers(1, [*ANSWER, ("grpc-status", "16"), ("grpc-message", "who?")], end_stream=True)

    async def body(call: http2.Call, _: list[Peer]) -> None:
        assert await ends(call.answer()) == "UNAUTHENTICATED: who?"

    call_of(tmp_path, play, body)


@pytest.mark.parametrize(
    ("says", "why"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "expected HTTP/2, got"), (b"SSH-2.0-OpenSSH_9\r\n", "expected HTTP/2, got")],
)
async def test_another_kind_of_server_is_no_riddle(tmp_path: Path, says: bytes, why: str) -> None:
    class Other(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(says + b" " * 50)

    async with listening(tmp_path, Other) as (address, _):
        call = await open_call(address, None)
        call.begin("/a.B/C", "localhost", ())
        assert (await ends(call.receive())).startswith(why)
        await call.close()


def test_a_web_server_that_speaks_http_2_says_it_has_no_grpc(tmp_path: Path) -> None:
    def play(peer: Peer, event: Event) -> None:
        if isinstance(event, RequestReceived):
            peer.h2.send_headers(1, [(":status", "404"), ("content-type", "text/html")])

    async def body(call: http2.Call, _: list[Peer]) -> None:
        assert await ends(call.receive()) == "expected gRPC, got HTTP status 404, text/html"

    call_of(tmp_path, play, body)


@pytest.mark.parametrize("address", ["ctl", "ctl:", "ctl:port", "[::1]"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        asyncio.run(open_call(address, None))
