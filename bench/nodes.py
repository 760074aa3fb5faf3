"""Nodes for a load: what an agent sends, from a process that speaks for thousands of them."""

import asyncio
import contextlib
import random
import time
from collections import deque
from dataclasses import dataclass, field

from wire import Ended, Wire

from nodetriage.v1 import health_pb2 as pb

BOOT = "00000000-0000-0000-0000-000000000001"
LAST_ACKS_S = 10.0  # that may come after the end


@dataclass
class Tally:
    """What all agents together have seen."""

    agents: int
    all_there: asyncio.Event  # or gone
    connected: int = 0
    heartbeats: int = 0
    sent_events: int = 0
    acked_events: int = 0
    ended: int = 0
    ack_s: list[float] = field(default_factory=list)
    why: str = ""

    def count(self, connected: int = 0, ended: int = 0) -> None:
        self.connected += connected
        self.ended += ended
        if self.connected + self.ended >= self.agents:
            self.all_there.set()


@dataclass(frozen=True)
class Load:
    """What each agent does."""

    port: int
    batch: int
    every_s: float  # between batches
    heartbeat_s: float


@dataclass
class Clock:
    """From when to when agents send; `begin` is set once all are connected."""

    begin: asyncio.Event
    until_s: float = 0.0


def _event_body() -> bytes:
    made = pb.Event(boot_id=BOOT, at_unix_us=time.time_ns() // 1000, kind=pb.EVENT_KIND_REPEATED)
    made.check, made.component, made.fault = (
        "gpu_xid",
        "GPU-5d5b1ba5-6bd1-4f9b-a3bf-1d0b9b2a7a11",
        "gpu_xid_application",
    )
    made.severity = pb.SEVERITY_WARNING
    made.evidence["xid"].whole = 31
    made.evidence["line"].text = "NVRM: Xid (PCI:0000:3a:00): 31, pid=4242, name=python, Ch 00000008"
    return made.SerializeToString()


BODY = _event_body()


def batch(first_seq: int, count: int) -> bytes:
    """An EventBatch; the fields of a message may come in any order, so each event is the same bytes and its number."""
    events = (BODY + pb.Event(seq=seq).SerializeToString() for seq in range(first_seq, first_seq + count))
    whole = b"".join(b"\x0a" + _varint(len(event)) + event for event in events)
    return b"\x12" + _varint(len(whole)) + whole


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def heartbeats() -> tuple[bytes, bytes]:
    """The first one of a stream, and one after it."""
    checks = [pb.CheckState(check=f"check_{i}", outcome=pb.OUTCOME_OK, age_ms=1000 * i) for i in range(25)]
    ports = [pb.PortTraffic(port=f"mlx5_{i}/1", rx_bytes=1 << 40, tx_bytes=1 << 40) for i in range(8)]
    first = pb.Heartbeat(boot_id=BOOT, at_unix_us=1, checks=checks, ports=ports)
    later = pb.Heartbeat(boot_id=BOOT, at_unix_us=1, checks=checks[:1])
    return tuple(pb.AgentMessage(heartbeat=beat).SerializeToString() for beat in (first, later))  # type: ignore[return-value]


class Agent:
    """One node: connects, waits for the others, then beats and sends."""

    def __init__(self, node: str, load: Load, tally: Tally, places: asyncio.Semaphore, clock: Clock) -> None:
        self._node, self._load, self._tally, self._places, self._clock = node, load, tally, places, clock
        self._due: deque[tuple[float, int]] = deque()  # when a batch was due, its last number
        self._all_acked = asyncio.Event()
        self._all_acked.set()

    async def run(self) -> None:
        wire: Wire | None = None
        try:
            async with self._places:
                wire = await Wire.connect("127.0.0.1", self._load.port)
                hello = pb.Hello(protocol=1, node=self._node, boot_id=BOOT, agent_version="0.1.0", profile="bench")
                wire.send(pb.AgentMessage(hello=hello).SerializeToString())
                await wire.receive()
            self._tally.count(connected=1)
            await self._talk(wire)
        except (Ended, OSError) as error:
            self._tally.count(ended=1)
            self._tally.why = str(error)
        finally:
            if wire:
                wire.close()

    async def _talk(self, wire: Wire) -> None:
        first, later = heartbeats()
        wire.send(first)
        hearing = asyncio.ensure_future(self._hear(wire))
        beating = asyncio.ensure_future(self._beat(wire, later))
        try:
            await self._clock.begin.wait()
            await self._send(wire)
        finally:
            hearing.cancel()
            beating.cancel()
            for ended in await asyncio.gather(hearing, beating, return_exceptions=True):
                if isinstance(ended, Ended):
                    self._tally.ended += 1
                    self._tally.why = str(ended)

    async def _beat(self, wire: Wire, beat: bytes) -> None:
        await asyncio.sleep(random.uniform(0, self._load.heartbeat_s))
        while True:
            wire.send(beat)
            self._tally.heartbeats += 1
            await asyncio.sleep(self._load.heartbeat_s * random.uniform(0.9, 1.0))

    async def _send(self, wire: Wire) -> None:
        seq, due_s = 1, time.monotonic() + random.uniform(0, self._load.every_s)
        while due_s < self._clock.until_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            wire.send(batch(seq, self._load.batch))
            seq += self._load.batch
            self._tally.sent_events += self._load.batch
            self._due.append((due_s, seq - 1))
            self._all_acked.clear()
            due_s += self._load.every_s
        await asyncio.sleep(max(0.0, self._clock.until_s - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_acked.wait(), LAST_ACKS_S)

    async def _hear(self, wire: Wire) -> None:
        while True:
            message = await wire.receive()
            for acked in message.ack.ranges:
                self._tally.acked_events += acked.last_seq - acked.first_seq + 1
                while self._due and self._due[0][1] <= acked.last_seq:
                    self._tally.ack_s.append(time.monotonic() - self._due.popleft()[0])
            if not self._due:
                self._all_acked.set()
