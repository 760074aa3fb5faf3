"""A network between agents and a controller that can be slow, lossy or cut: a proxy for TCP and Unix sockets.

What TCP makes of loss is what a program sees of it: a segment that was lost holds up all that come after it for a
retransmission timeout. So a chunk is "lost" by delaying it, and its successors, by that time.
"""

import asyncio
import contextlib
import random
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any

RETRANSMIT_S = 0.2  # Linux's least timeout (TCP_RTO_MIN)
CHUNK_BYTES = 16_384


class Link:
    """Listens on `here` and passes on to `there`; both are gRPC's names of addresses (HOST:PORT or unix:PATH).

    Has a thread and an event loop of its own; the settings may be changed at any time.
    """

    def __init__(self, here: str, there: str, *, latency_s: float = 0.0, loss: float = 0.0, up: bool = True) -> None:
        self.address = here
        self.latency_s = latency_s  # one way
        self.loss = loss  # of chunks, 0 to 1
        self.connections = 0  # ever made
        self._there = there
        self._up = up
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link")
        self._thread.start()
        self._server: asyncio.Server = self._do(self._listen())

    def cut(self) -> None:
        """Ends all connections and takes no new ones."""
        self._up = False
        self._do(self._drop())

    def restore(self) -> None:
        self._up = True

    def hold(self) -> None:
        """Nothing passes until `let_go`; connections stay."""
        self._do(self._flow(on=False))

    def let_go(self) -> None:
        self._do(self._flow(on=True))

    def close(self) -> None:
        self.cut()
        self._server.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, job: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(90)

    async def _flow(self, *, on: bool) -> None:
        (self._flows.set if on else self._flows.clear)()

    async def _listen(self) -> asyncio.Server:
        if self.address.startswith("unix:"):
            return await asyncio.start_unix_server(self._serve, self.address.removeprefix("unix:"))
        host, _, port = self.address.rpartition(":")
        server = await asyncio.start_server(self._serve, host, int(port))
        self.address = f"{host}:{server.sockets[0].getsockname()[1]}"
        return server

    async def _drop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            if self._up:
                self.connections += 1
                await self._join(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # a reset, as from a router that knows of nothing
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if self._there.startswith("unix:"):
                beyond = await asyncio.open_unix_connection(self._there.removeprefix("unix:"))
            else:
                host, _, port = self._there.rpartition(":")
                beyond = await asyncio.open_connection(host, int(port))
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass_on(reader, beyond[1]))
                    both.create_task(self._pass_on(beyond[0], writer))
            except* OSError:
                pass
            finally:
                beyond[1].close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In order; latency delays each chunk, not the next one's start."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                at_s, data = await waiting.get()
                await asyncio.sleep(at_s - loop.time())
                await self._flows.wait()
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        delivering = loop.create_task(deliver())
        at_s = 0.0
        try:
            while True:
                data = await reader.read(CHUNK_BYTES)
                delay_s = self.latency_s + (RETRANSMIT_S if random.random() < self.loss else 0.0)
                at_s = max(at_s, loop.time() + delay_s)
                waiting.put_nowait((at_s, data))
                if not data:
                    return await delivering
        finally:
            delivering.cancel()


def main() -> None:
    """`link.py HERE THERE LATENCY_S LOSS`: a link as a process, for a network namespace; ends by a signal."""
    here, there, latency_s, loss = sys.argv[1:]
    link = Link(here, there, latency_s=float(latency_s), loss=float(loss))
    print("up", flush=True)
    try:
        signal.pause()
    finally:
        link.close()


if __name__ == "__main__":
    main()
