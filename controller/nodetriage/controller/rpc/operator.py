"""Operators' orders: a gRPC service on a Unix socket that only its owner can open. Each call is recorded.

Another listener may serve the same handlers, with a `require` that proves who calls there.
"""

import contextlib
import os
import stat
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import grpc
import structlog

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.policy.orders.command import OperatorCommand, Verb
from nodetriage.controller.policy.state import Step
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.node_orders import Done, each_of, message_of, moment_of
from nodetriage.controller.store import schema
from nodetriage.controller.store.store import StoreError
from nodetriage.v1 import health_pb2, health_pb2_grpc

log = structlog.get_logger(__name__)

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Operator"].full_name
SOCKET = "operator.sock"
MOST_TEXT = 500  # characters of what is recorded
COMMAND_LIMIT_S = 120.0  # for an agent's answer; a run of all checks takes less

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
# From the call and the actor it claims to the name for the record. Raises Refused.
RequireOperator = Callable[[Context, health_pb2.Actor], Awaitable[str]]
SendCommand = Callable[[str, health_pb2.Command, float], Awaitable[health_pb2.CommandResult]]


class Commands(Protocol):
    """What the service needs of the reconciler."""

    async def command(self, command: OperatorCommand) -> Step: ...


class Records(Protocol):
    """What the service needs of the store."""

    async def write(self, work: Callable[[Any], Any]) -> Any: ...


class _Asked(NamedTuple):
    verb: str
    node: str = ""
    reason: str = ""


async def trust_socket(context: Context, actor: health_pb2.Actor) -> str:
    """Believes the client: who can open the socket can become root as well."""
    name = "".join(c for c in actor.name if c.isprintable())[:64].strip()
    return name or f"uid {actor.uid}"


class OperatorService:
    """The handlers. `send` passes a command to a node's agent."""

    def __init__(
        self, reconciler: Commands, send: SendCommand, store: Records, require: RequireOperator = trust_socket
    ) -> None:
        self._reconciler, self._send, self._store, self._require = reconciler, send, store, require

    async def Drain(self, request: health_pb2.DrainRequest, context: Context) -> health_pb2.OperatorReply:
        verb = "drain --now" if request.now else "drain"
        return await self._nodes(request, context, verb, "drain", at_once=request.now)

    async def Undrain(self, request: health_pb2.NodesRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._nodes(request, context, "undrain", "undrain")

    async def Release(self, request: health_pb2.NodesRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._nodes(request, context, "release", "release")

    async def Retire(self, request: health_pb2.NodesRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._nodes(request, context, "retire", "retire")

    async def SetTicket(self, request: health_pb2.NodesRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._nodes(request, context, "ticket", "ticket")

    async def AcceptFault(self, request: health_pb2.AcceptFaultRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._nodes(request, context, f"accept {request.fault[:100]}", "accept", fault=request.fault)

    async def SetLemon(self, request: health_pb2.LemonRequest, context: Context) -> health_pb2.OperatorReply:
        verb: Verb = "lemon_set" if request.on else "lemon_lift"
        return await self._nodes(request, context, verb.replace("_", " "), verb)

    async def SetMaintenance(
        self, request: health_pb2.MaintenanceRequest, context: Context
    ) -> health_pb2.OperatorReply:
        verb: Verb = "maintenance_on" if request.on else "maintenance_off"
        until = moment_of(request.until_unix_us)
        return await self._nodes(request, context, f"maintenance {'on' if request.on else 'off'}", verb, until=until)

    async def OpenBreaker(self, request: health_pb2.FleetRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._fleet(request, context, "breaker open", "open_breaker")

    async def CloseBreaker(self, request: health_pb2.FleetRequest, context: Context) -> health_pb2.OperatorReply:
        return await self._fleet(request, context, "breaker close", "close_breaker")

    async def CloseIncident(
        self, request: health_pb2.CloseIncidentRequest, context: Context
    ) -> health_pb2.OperatorReply:
        verb = f"incident close {request.incident[:100]}"
        return await self._fleet(request, context, verb, "close_incident", incident=request.incident)

    async def Pause(self, request: health_pb2.PauseRequest, context: Context) -> health_pb2.OperatorReply:
        until = moment_of(request.until_unix_us)
        verb: Verb = "pause" if until else "unpause"
        return await self._fleet(request, context, verb, verb, until=until)

    async def ClearFault(self, request: health_pb2.ClearFaultRequest, context: Context) -> health_pb2.OperatorReply:
        fault = request.fault
        asked = _Asked("clear", request.nodes, f"{fault.check} {fault.component} {fault.fault}")

        def clear(who: str, node: str) -> Awaitable[Done]:
            about = health_pb2.ClearFault(check=fault.check, component=fault.component, fault=fault.fault, actor=who)
            return self._tell_agent(node, health_pb2.Command(id=uuid.uuid4().hex, clear=about))

        return await self._answer(request.actor, context, asked, lambda who: each_of(request.nodes, who, clear))

    async def RunChecks(self, request: health_pb2.RunChecksRequest, context: Context) -> health_pb2.OperatorReply:
        asked = _Asked("run-checks", request.nodes, " ".join(request.run.checks))

        def run(who: str, node: str) -> Awaitable[Done]:
            return self._tell_agent(node, health_pb2.Command(id=uuid.uuid4().hex, run=request.run))

        return await self._answer(request.actor, context, asked, lambda who: each_of(request.nodes, who, run))

    async def _nodes(
        self, request: Any, context: Context, shown: str, verb: Verb, **more: Any
    ) -> health_pb2.OperatorReply:
        """An order for each node of a node set."""

        def order(who: str, node: str) -> Awaitable[Done]:
            return self._order(OperatorCommand(verb, node, who, request.reason, **more))

        asked = _Asked(shown, request.nodes, request.reason)
        return await self._answer(request.actor, context, asked, lambda who: each_of(request.nodes, who, order))

    async def _fleet(
        self, request: Any, context: Context, shown: str, verb: Verb, **more: Any
    ) -> health_pb2.OperatorReply:
        async def order(who: str) -> list[Done]:
            return [await self._order(OperatorCommand(verb, "", who, request.reason, **more))]

        return await self._answer(request.actor, context, _Asked(shown, "", request.reason), order)

    async def _answer(
        self,
        actor: health_pb2.Actor,
        context: Context,
        asked: _Asked,
        do: Callable[[str], Awaitable[list[Done]]],
    ) -> health_pb2.OperatorReply:
        try:
            who = await self._require(context, actor)
            each = await do(who)
            done, message = all(one.done for one in each), message_of(each)
            await self._record(who, asked, done, message)
        except (Refused, StoreError) as error:
            code = error.code if isinstance(error, Refused) else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, str(error))
            raise
        log.info("operator", actor=who, verb=asked.verb, node=asked.node, done=done, answer=message)
        replies = [health_pb2.NodeReply(node=o.node, done=o.done, message=o.message) for o in each if o.node]
        return health_pb2.OperatorReply(done=done, message=message, nodes=replies)

    async def _order(self, command: OperatorCommand) -> Done:
        step = await self._reconciler.command(command)
        if step.reply is not None and not step.reply.accepted:
            return Done(command.node, False, step.reply.text)
        return Done(command.node, True, "recorded; `nodetriagectl actions` shows what comes of it")

    async def _tell_agent(self, node: str, command: health_pb2.Command) -> Done:
        try:
            result = await self._send(node, command, COMMAND_LIMIT_S)
        except Refused as error:
            return Done(node, False, str(error))
        except TimeoutError:
            return Done(node, False, f"{node}: the agent did not answer within {COMMAND_LIMIT_S:g} s")
        return Done(node, result.done, result.message)

    async def _record(self, who: str, asked: _Asked, done: bool, message: str) -> None:
        row = {
            "at_us": time.time_ns() // 1000,
            "actor": who,
            "verb": asked.verb,
            "node": _cut(asked.node),
            "reason": asked.reason[:MOST_TEXT],
            "done": int(done),
            "answer": message[:MOST_TEXT],
        }
        await self._store.write(lambda c: c.execute(schema.operator_log.insert(), [row]))


def _cut(nodes: str) -> str:
    """A node set that is too long for the record is none any more: half of one would name other nodes."""
    return nodes if len(nodes) <= MOST_TEXT else f"{nodes[:MOST_TEXT]} (cut)"


class OperatorListener:
    """The socket in the run directory, mode 0600. `start`, then `stop`."""

    def __init__(self, run_dir: Path, service: OperatorService) -> None:
        self._run_dir, self._service = run_dir, service
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Raises ConfigError where the socket cannot be created."""
        server = grpc.aio.server()
        health_pb2_grpc.add_OperatorServicer_to_server(self._service, server)  # type: ignore[no-untyped-call]
        path = self._run_dir / SOCKET
        before = os.umask(0o177)  # closed from the start: between bind and chmod anyone could connect
        try:
            self._run_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
            if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
                raise ConfigError(
                    f"controller.run_dir: {path} exists and is no socket: expected the controller's socket, or nothing"
                )
            with address_of(path) as address:
                server.add_insecure_port(address)
            path.chmod(0o600)
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"controller.run_dir: {path}: {getattr(error, 'strerror', None) or error}") from error
        finally:
            os.umask(before)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(1.0)
            with contextlib.suppress(OSError):
                (self._run_dir / SOCKET).unlink()


@contextlib.contextmanager
def address_of(path: Path) -> Any:
    """The socket's address for gRPC, through the folder's descriptor: a Unix socket's path has at most 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"unix:/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def ask(path: Path, method: str, request: Any, timeout_s: float = COMMAND_LIMIT_S + 10) -> health_pb2.OperatorReply:
    """Sends an order and waits for the reply; blocks. Raises ConnectionError, which says what to check."""
    try:
        with address_of(path) as address, grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.OperatorStub(channel)  # type: ignore[no-untyped-call]
            reply: health_pb2.OperatorReply = getattr(stub, method)(request, timeout=timeout_s)
            return reply
    except OSError as error:
        raise ConnectionError(
            f"{path}: {error.strerror}; does a controller run here? `systemctl status nodetriage-controller`"
        ) from error
    except grpc.RpcError as error:
        raise ConnectionError(
            f"{path}: {error.details()}; does a controller run here, and may you speak to it?"
        ) from error
