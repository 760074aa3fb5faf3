"""A node that storms gets its share and no more: the others' faults are on disk as soon as ever."""

import asyncio
import contextlib
import statistics
import time
from pathlib import Path

from fleet_client import AgentStream, agent, batch, event, serving

from nodetriage.controller.admission import AdmissionSettings
from nodetriage.v1 import health_pb2 as pb

SECONDS = 3.0
STORM_BATCH = 200
OTHERS = 10
PER_S, BURST = 1000.0, 2000


class Storm:
    """Sends batches without waiting for anything but the connection's flow control."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream = stream
        self.sent = self.acked = 0

    async def send(self) -> None:
        while True:
            seqs = range(self.sent + 1, self.sent + STORM_BATCH + 1)
            events = [event(seq, severity=pb.SEVERITY_WARNING, part="x" * 200) for seq in seqs]
            await self._stream.send(pb.AgentMessage(events=pb.EventBatch(events=events)))
            self.sent += STORM_BATCH

    async def hear(self) -> None:
        while True:
            message = await self._stream.next()
            self.acked += sum(r.last_seq - r.first_seq + 1 for r in message.ack.ranges)


async def ack_times_s(stream: AgentStream, seconds: float) -> list[float]:
    """How long each of a node's faults took until it was on disk, one at a time."""
    took_s, until_s = [], time.monotonic() + seconds
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        await stream.send(batch(len(took_s) + 1))
        await stream.next()
        took_s.append(time.monotonic() - began_s)
        await asyncio.sleep(0.05)
    return took_s


def test_one_node_that_storms_delays_no_other_and_is_held_to_its_rate(tmp_path: Path) -> None:
    limits = AdmissionSettings(events_per_s_per_node=PER_S, burst_events_per_node=BURST)

    async def main() -> tuple[Storm, list[float], float]:
        async with contextlib.AsyncExitStack() as stack:
            server, _, target = await stack.enter_async_context(serving(tmp_path, admission=limits))
            streams = [await stack.enter_async_context(agent(target)) for _ in range(OTHERS + 1)]
            for i, stream in enumerate(streams):
                await stream.hello(f"n{i}")
            storm = Storm(streams[0])
            storming = [asyncio.ensure_future(job) for job in (storm.send(), storm.hear())]
            began_s = time.monotonic()
            took_s = await asyncio.gather(*(ack_times_s(stream, SECONDS) for stream in streams[1:]))
            assert not any(task.done() for task in storming), "the storm was sent away"
            lasted_s = time.monotonic() - began_s
            for task in storming:
                task.cancel()
            assert len(server.connected()) == OTHERS + 1
            return storm, [one for node in took_s for one in node], lasted_s

    storm, took_s, lasted_s = asyncio.run(asyncio.wait_for(main(), 60))

    cuts = statistics.quantiles(took_s, n=100)
    print(f"{len(took_s)} faults of {OTHERS} others: p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms")
    print(f"the storm: {storm.sent} sent, {storm.acked} on disk in {lasted_s:.1f} s")
    assert cuts[49] < 0.1
    assert cuts[98] < 1.0
    assert BURST <= storm.acked <= BURST + PER_S * lasted_s + STORM_BATCH
    # What it could send beyond that waits in the windows of its one connection.
    assert storm.sent - storm.acked < 30_000
