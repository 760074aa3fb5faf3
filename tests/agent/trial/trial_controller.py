"""A controller for the agent's tests: keeps every event it gets, acks when told to, sends commands."""

import asyncio
import time
from typing import Any

import grpc

from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc


class TrialController(health_pb2_grpc.NodeHealthServicer):
    """Owned by one event loop. `events` is in the order of arrival, `stored` what it would say in a welcome."""

    def __init__(self) -> None:
        self.events: list[pb.Event] = []
        self.batches: list[int] = []
        self.hellos: list[pb.Hello] = []
        self.heartbeats: list[pb.Heartbeat] = []
        self.results: list[pb.CommandResult] = []
        self.metadata: list[dict[str, Any]] = []
        self.called_s: list[float] = []  # monotonic
        self.acking = True
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.stored: list[pb.SeqRange] = []
        self.heartbeat_every_ms = 0
        self.idle_heartbeat_every_ms = 0
        self.commands: asyncio.Queue[pb.Command] = asyncio.Queue()
        self.words: asyncio.Queue[pb.HookAuthority | pb.ControllerMessage] = asyncio.Queue()
        self._server: Any = None
        self.address = ""

    async def start(self, address: str = "127.0.0.1:0") -> str:
        self._server = grpc.aio.server()
        health_pb2_grpc.add_NodeHealthServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        port = self._server.add_insecure_port(address)
        await self._server.start()
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        return self.address

    async def stop(self) -> None:
        await self._server.stop(0)

    async def Connect(self, requests: Any, context: Any) -> Any:
        self.called_s.append(time.monotonic())
        self.metadata.append(dict(context.invocation_metadata()))
        if self.refuse:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", self.refuse[1]),))
            await context.abort(self.refuse[0], "not now")
        hello = await context.read()
        self.hellos.append(hello.hello)
        await context.write(
            pb.ControllerMessage(
                welcome=pb.Welcome(
                    controller_version="0",
                    heartbeat_every_ms=self.heartbeat_every_ms,
                    idle_heartbeat_every_ms=self.idle_heartbeat_every_ms,
                    stored=self.stored,
                )
            )
        )
        commands = asyncio.gather(self._command(context), self._word(context))
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                await self._take(message, context)
        finally:
            commands.cancel()

    def ask_open_set(self) -> None:
        self.words.put_nowait(pb.ControllerMessage(open_set=pb.OpenSetWanted()))

    async def _command(self, context: Any) -> None:
        while True:
            await context.write(pb.ControllerMessage(command=await self.commands.get()))

    async def _word(self, context: Any) -> None:
        while True:
            word = await self.words.get()
            await context.write(word if isinstance(word, pb.ControllerMessage) else pb.ControllerMessage(hooks=word))

    async def _take(self, message: pb.AgentMessage, context: Any) -> None:
        body = message.WhichOneof("body")
        if body == "heartbeat":
            self.heartbeats.append(message.heartbeat)
        elif body == "result":
            self.results.append(message.result)
        elif body == "events":
            events = list(message.events.events)
            self.events += events
            self.batches.append(len(events))
            if self.acking:
                ranges = [pb.SeqRange(boot_id=e.boot_id, first_seq=e.seq, last_seq=e.seq) for e in events]
                await context.write(pb.ControllerMessage(ack=pb.Ack(ranges=ranges)))
