"""A client that speaks the agent's side of the protocol, for the tests of the service."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from nodetriage.controller.rpc.last_seen import LastSeen
from nodetriage.controller.rpc.server import NodeHealthServer, ServerSettings
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

BOOT = "11111111-1111-1111-1111-111111111111"
VERSION = "0.4.2"
LIMIT_S = 60  # for an answer: how long one takes says more about the machine than about the service


def event(seq: int, *, boot: str = BOOT, fault: str = "gpu_lost", **more: Any) -> pb.Event:
    given = {"kind": pb.EVENT_KIND_RAISED, "check": "gpu_lost", "component": "GPU-1", "severity": pb.SEVERITY_CRITICAL}
    at = {"at_unix_us": 1_000_000 + seq % 1_000_000}
    return pb.Event(boot_id=boot, seq=seq, fault=fault, **{**at, **given, **more})


def batch(*seqs: int) -> pb.AgentMessage:
    return pb.AgentMessage(events=pb.EventBatch(events=[event(seq) for seq in seqs]))


def hello(node: str = "n1", **more: Any) -> pb.AgentMessage:
    given = {"protocol": 1, "node": node, "boot_id": BOOT, "agent_version": VERSION, "profile": "h100"}
    return pb.AgentMessage(hello=pb.Hello(**{**given, **more}))


def acked(message: pb.ControllerMessage) -> list[tuple[str, int, int]]:
    return [(r.boot_id, r.first_seq, r.last_seq) for r in message.ack.ranges]


async def ended(call: Any) -> tuple[grpc.StatusCode, str]:
    """The call's status. It comes only after what was sent before it has been read."""
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code(), await call.details()


class AgentStream:
    """One Connect call. Reads end with an assertion rather than hang. `hooks`: each word to the node's Slurm hooks."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.hooks: list[pb.HookAuthority] = []

    async def send(self, *messages: pb.AgentMessage) -> None:
        for message in messages:
            await self.call.write(message)

    async def next(self) -> pb.ControllerMessage:
        """The next message that is no word to the hooks: that may come between any two others."""
        while (message := await self._read()).HasField("hooks"):
            self.hooks.append(message.hooks)
        return message

    async def next_hooks(self) -> pb.HookAuthority:
        """The next word to the hooks; what comes before it is dropped."""
        while not (message := await self._read()).HasField("hooks"):
            pass
        self.hooks.append(message.hooks)
        return message.hooks

    async def _read(self) -> pb.ControllerMessage:
        async with asyncio.timeout(LIMIT_S):
            message = await self.call.read()
        assert message is not grpc.aio.EOF, await self.status()
        return message

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """How the call ended, what remains to read being dropped."""
        return await ended(self.call)

    async def hello(self, *args: Any, **more: Any) -> pb.Welcome:
        await self.send(hello(*args, **more))
        return (await self.next()).welcome


@asynccontextmanager
async def channel(target: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as opened:
        yield opened


@asynccontextmanager
async def agent(target: str) -> AsyncIterator[AgentStream]:
    async with channel(target) as opened:
        call = health_pb2_grpc.NodeHealthStub(opened).Connect()
        try:
            yield AgentStream(call)
        finally:
            call.cancel()


@asynccontextmanager
async def serving(
    folder: Path, listen: str = "127.0.0.1:0", options: Sequence[Any] = (), **settings: Any
) -> AsyncIterator[tuple[NodeHealthServer, Store, str]]:
    """A store and a service on a port of its own: (service, store, target)."""
    store = Store(open_database(f"sqlite:///{folder / 'history.sqlite'}"))
    await store.open()
    server = NodeHealthServer(store, LastSeen(0.0), ServerSettings(listen, VERSION, **settings), *options)
    try:
        await server.start()
        try:
            yield server, store, f"127.0.0.1:{server.port}" if server.port > 1 else listen
        finally:
            await server.stop(grace_s=0.5)
    finally:
        await store.close()
