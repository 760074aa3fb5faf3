"""The gRPC service of the controller: agents' streams in, acks and commands out, Watch for everyone else.

This module turns a call into a session and passes the session's messages on; ingest.py writes the events to disk.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1 import health_pb2 as health_protocol
from grpc_reflection.v1alpha import reflection

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth.identity import (
    PLAINTEXT,
    Authenticator,
    Context,
    Identity,
    ThisMachine,
    may_watch,
    speaks_for,
)
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.admission import admit_hello, admit_watch, is_node_name
from nodetriage.controller.rpc.agent_messages import AgentMessages, unix_us
from nodetriage.controller.rpc.gate import Gate
from nodetriage.controller.rpc.hook_authority import HookAuthorities
from nodetriage.controller.rpc.ingest import wire
from nodetriage.controller.rpc.last_seen import LastSeen
from nodetriage.controller.rpc.listener import channel_options, core_message_bytes
from nodetriage.controller.rpc.messages import confirm, parse, read_briefly, read_hello
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.rpc.session import Session
from nodetriage.controller.rpc.watch import until, watch
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store, StoreError
from nodetriage.service.address import is_local
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2
from nodetriage.v1 import health_pb2_grpc as nodetriage_grpc

log = structlog.get_logger(__name__)

SERVICE = health_pb2.DESCRIPTOR.services_by_name["NodeHealth"].full_name

_LAST_WORDS_S = 5.0  # how long an agent that does not read keeps its stream after the end
_CAUSE_S = 0.1  # gRPC may report the end of reading before it reports that the peer broke the stream off


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`version` is the controller's own."""

    listen: str
    version: str
    heartbeat_every_s: float = 5.0
    idle_heartbeat_every_s: float = 20.0
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    names: Collection[str] = ()  # of checks and faults that the catalogue has


class NodeHealthServer:
    """Owns the listener and the table of sessions. `start`, then `stop`; `port` is the bound one (0 for unix)."""

    def __init__(
        self,
        store: Store,
        last_seen: LastSeen,
        settings: ServerSettings,
        authenticator: Authenticator | None = None,
        deny: Collection[str] = (),
    ) -> None:
        self._store, self.last_seen, self._settings = store, last_seen, settings
        self._proof = authenticator or ThisMachine()
        self.gate = Gate(self._proof, settings.admission, deny)
        self.operators: Any = None  # an Operator servicer; it is served where peers prove who they are
        self.on_refused: Callable[[str, str], None] = lambda node, why: None  # an agent that may speak for its node
        self.on_hello: Callable[[health_pb2.Hello], Awaitable[None]] = _take_note  # before any event of the stream
        self.hooks = HookAuthorities(self._tell, self.connected)
        self._sessions: dict[str, Session] = {}
        self.messages = AgentMessages(store, last_seen, settings.admission, settings.names)
        self._watchers = 0
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises ConfigError where the address cannot be bound, or where it needs proof of identity and has none."""
        listen, credentials = self._settings.listen, self._proof.credentials()
        if credentials is None and not is_local(listen):
            raise ConfigError(f"controller.listen: {listen}: {PLAINTEXT}")
        server = grpc.aio.server(options=channel_options(self._settings.admission))
        server.add_generic_rpc_handlers((self._handlers(),))
        if self._proof.knows_all:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)
        if credentials is not None and self.operators is not None:
            nodetriage_grpc.add_OperatorServicer_to_server(self.operators, server)  # type: ignore[no-untyped-call] # generated
        try:
            if credentials is None:
                self.port = server.add_insecure_port(listen)
            else:
                self.port = server.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise ConfigError(
                f"controller.listen: cannot listen on {listen}: expected a free address of this machine (`ss -ltnp`)"
            ) from error
        await server.start()
        self._server = server
        for name in ("", SERVICE):
            await self._health.set(name, health_protocol.HealthCheckResponse.SERVING)
        log.info("listening", address=listen, port=self.port)

    async def stop(self, grace_s: float = 2.0) -> None:
        """Asks every agent to reconnect later, and ends. Does nothing where `start` failed."""
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        for session in self._sessions.values():
            session.end(Refused(grpc.StatusCode.UNAVAILABLE, "the controller is stopping"))
        await self._server.stop(grace_s)

    def connected(self) -> tuple[str, ...]:
        """Nodes that have a stream now."""
        return tuple(self._sessions)

    async def command(
        self, node: str, command: health_pb2.Command, timeout_s: float = 30.0
    ) -> health_pb2.CommandResult:
        """Sends a command to a node's agent and waits. Raises Refused (not connected) or TimeoutError."""
        if (session := self._sessions.get(node)) is None:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"{node}: its agent is not connected")
        return await session.command(command, timeout_s)

    def ask_open_set(self, node: str) -> None:
        """The agent's next heartbeat, at once, states its whole open set. Does nothing where it has no stream."""
        if session := self._sessions.get(node):
            session.send(health_pb2.ControllerMessage(open_set=health_pb2.OpenSetWanted()))

    def _tell(self, node: str, message: health_pb2.ControllerMessage) -> None:
        """Does nothing where the node has no stream: it learns the same when it has one."""
        if session := self._sessions.get(node):
            session.send_word(message)

    def _handlers(self) -> grpc.GenericRpcHandler:
        # Raw bytes: the handlers refuse and log what they cannot parse, where gRPC would answer INTERNAL.
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Connect": grpc.stream_stream_rpc_method_handler(
                    self._connect, response_serializer=health_pb2.ControllerMessage.SerializeToString
                ),
                "Watch": grpc.unary_stream_rpc_method_handler(
                    self._watch, response_serializer=health_pb2.WatchedEvent.SerializeToString
                ),
            },
        )

    async def _connect(self, _: AsyncIterator[bytes], context: Context) -> None:
        entered = False
        try:
            async with self.gate.entered(context) as identity:
                entered = True
                await self._serve_agent(context, identity)
            await asyncio.sleep(_CAUSE_S)
        except (Refused, StoreError) as error:
            if not entered:
                await read_briefly(context)
            await self._refuse(context, error)
        except asyncio.CancelledError:
            limit = core_message_bytes(self._settings.admission)
            log.info("stream broken off", peer=context.peer(), by=f"the peer, or for a message over {limit} bytes")
            raise

    async def _watch(self, raw: bytes, context: Context) -> AsyncIterator[health_pb2.WatchedEvent]:
        try:
            async with self.gate.entered(context) as identity:
                may_watch(identity)
                admit_watch(request := parse(health_pb2.WatchRequest, raw))
                with self.gate.until_no_longer_good(identity) as ended:
                    async with contextlib.aclosing(until(ended, self._watched(request, context))) as found:
                        async for event in found:
                            yield event
        except (Refused, StoreError) as error:
            await self._refuse(context, error)

    async def _watched(
        self, request: health_pb2.WatchRequest, context: Context
    ) -> AsyncGenerator[health_pb2.WatchedEvent, None]:
        if self._watchers >= self._settings.admission.max_watchers:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"already {self._watchers} watchers")
        self._watchers += 1
        try:
            await confirm(context)
            async with contextlib.aclosing(watch(self._store, request)) as found:
                async for event in found:
                    yield event
        finally:
            self._watchers -= 1

    async def _greeted(self, context: Context, identity: Identity) -> health_pb2.Hello:
        """The agent's hello, if it may speak for its node and is admitted."""
        limits = self._settings.admission
        hello = await read_hello(context, limits)
        if not is_node_name(hello.node):
            admit_hello(hello, self._settings.version)
        speaks_for(identity, hello.node)
        try:
            admit_hello(hello, self._settings.version)
            if len(self._sessions) >= limits.max_agents and hello.node not in self._sessions:
                raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"already {limits.max_agents} agents")
        except Refused as refused:
            self.on_refused(hello.node, refused.reason)
            raise
        return hello

    async def _serve_agent(self, context: Context, identity: Identity) -> None:
        if identity.answer:
            await context.send_initial_metadata(identity.answer)
        hello = await self._greeted(context, identity)
        now_us = unix_us()
        stored = await self._store.record_hello(
            Hello(hello.node, hello.boot_id, hello.agent_version, hello.profile), now_us
        )
        await self.on_hello(hello)
        session = Session(hello.node, hello.boot_id, context.peer())
        self._enter(session)
        ending = self.gate.guard(identity, session.end)
        log.info(
            "agent connected", node=hello.node, peer=session.peer, version=hello.agent_version, identity=identity.how
        )
        session.send(self._welcome(stored))
        if word := self.hooks.word(hello.node):
            session.send_word(word)
        sender = asyncio.ensure_future(session.send_all(context))
        tasks = [
            asyncio.ensure_future(self.messages.take(session, context)),
            asyncio.ensure_future(session.ended()),
            sender,
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            ending()
            self._leave(session)
            # gRPC sends no status while a message is on its way, and cannot take a message back.
            await asyncio.wait([sender], timeout=_LAST_WORDS_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _welcome(self, stored: list[SeqRange]) -> health_pb2.ControllerMessage:
        welcome = health_pb2.Welcome(
            controller_version=self._settings.version,
            heartbeat_every_ms=round(self._settings.heartbeat_every_s * 1000),
            idle_heartbeat_every_ms=round(self._settings.idle_heartbeat_every_s * 1000),
            stored=wire(stored),
        )
        return health_pb2.ControllerMessage(welcome=welcome)

    async def _refuse(self, context: Context, error: Refused | StoreError) -> None:
        if isinstance(error, StoreError):
            error = Refused(grpc.StatusCode.UNAVAILABLE, f"the controller cannot use its database: {error}")
        self.gate.refusals.tell(context.peer(), error.code.name, error.reason)
        await context.abort(error.code, error.reason)

    def _enter(self, session: Session) -> None:
        if older := self._sessions.get(session.node):
            log.warning("stream replaced by a newer one", node=session.node, old=older.peer, new=session.peer)
            older.end(Refused(grpc.StatusCode.ABORTED, f"{session.node}: a newer stream came from {session.peer}"))
        self._sessions[session.node] = session
        self.last_seen.hear(session.node, time.monotonic(), unix_us())

    def _leave(self, session: Session) -> None:
        session.close()
        if self._sessions.get(session.node) is session:
            del self._sessions[session.node]
            log.info("agent disconnected", node=session.node, peer=session.peer)


async def _take_note(hello: health_pb2.Hello) -> None:
    """What nobody waits for."""
