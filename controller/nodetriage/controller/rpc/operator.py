"""What operators ask for: a gRPC service on a Unix socket that only its owner can open. Each call leaves a record.

The service's handlers can be added to another listener too, with a `require` that proves who is calling there.
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
from nodetriage.controller.policy.state import OperatorCommand, Step
from nodetriage.controller.refused import Refused
from nodetriage.controller.store import schema
from nodetriage.controller.store.store import StoreError
from nodetriage.v1 import health_pb2, health_pb2_grpc

log = structlog.get_logger(__name__)

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Operator"].full_name
SOCKET = "operator.sock"
COMMAND_LIMIT_S = 120.0  # for an agent's answer; a whole round of checks fits into it

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
# Given the call and who it says it is for, gives the name to put on record. Raises Refused.
RequireOperator = Callable[[Context, health_pb2.Actor], Awaitable[str]]
SendCommand = Callable[[str, health_pb2.Command, float], Awaitable[health_pb2.CommandResult]]


class Commands(Protocol):
    """What is needed of the brain."""

    async def command(self, command: OperatorCommand) -> Step: ...


class Records(Protocol):
    """What is needed of the store."""

    async def write(self, work: Callable[[Any], Any]) -> Any: ...


class _Asked(NamedTuple):
    verb: str
    node: str = ""
    reason: str = ""


async def trust_socket(context: Context, actor: health_pb2.Actor) -> str:
    """Takes the client's word: who can open the socket can be root as well."""
    name = "".join(c for c in actor.name if c.isprintable())[:64].strip()
    return name or f"uid {actor.uid}"


class OperatorService:
    """The handlers. `send` passes a command on to a node's agent."""

    def __init__(
        self, reconciler: Commands, send: SendCommand, store: Records, require: RequireOperator = trust_socket
    ) -> None:
        self._brain, self._send, self._store, self._require = reconciler, send, store, require

    async def Undrain(self, request: health_pb2.UndrainRequest, context: Context) -> health_pb2.OperatorReply:
        asked = _Asked("undrain", request.node)
        return await self._answer(
            request.actor, context, asked, lambda who: self._tell_brain("undrain", request.node, who, "")
        )

    async def SetMaintenance(
        self, request: health_pb2.MaintenanceRequest, context: Context
    ) -> health_pb2.OperatorReply:
        asked = _Asked(f"maintenance {'on' if request.on else 'off'}", request.node, request.reason)
        verb = "maintenance_on" if request.on else "maintenance_off"
        return await self._answer(
            request.actor, context, asked, lambda who: self._tell_brain(verb, request.node, who, request.reason)
        )

    async def CloseBreaker(self, request: health_pb2.CloseBreakerRequest, context: Context) -> health_pb2.OperatorReply:
        asked = _Asked("breaker close", "", request.reason)
        return await self._answer(
            request.actor, context, asked, lambda who: self._tell_brain("close_breaker", "", who, request.reason)
        )

    async def ClearFault(self, request: health_pb2.ClearFaultRequest, context: Context) -> health_pb2.OperatorReply:
        fault = request.fault
        asked = _Asked("clear", request.node, f"{fault.check} {fault.component} {fault.fault}")

        def clear(who: str) -> Awaitable[tuple[bool, str]]:
            about = health_pb2.ClearFault(check=fault.check, component=fault.component, fault=fault.fault, actor=who)
            return self._tell_agent(request.node, health_pb2.Command(id=uuid.uuid4().hex, clear=about))

        return await self._answer(request.actor, context, asked, clear)

    async def RunChecks(self, request: health_pb2.RunChecksRequest, context: Context) -> health_pb2.OperatorReply:
        asked = _Asked("run-checks", request.node, " ".join(request.run.checks))
        command = health_pb2.Command(id=uuid.uuid4().hex, run=request.run)
        return await self._answer(request.actor, context, asked, lambda _: self._tell_agent(request.node, command))

    async def _answer(
        self,
        actor: health_pb2.Actor,
        context: Context,
        asked: _Asked,
        do: Callable[[str], Awaitable[tuple[bool, str]]],
    ) -> health_pb2.OperatorReply:
        try:
            who = await self._require(context, actor)
            done, message = await do(who)
            await self._record(who, asked, done, message)
        except (Refused, StoreError) as error:
            code = error.code if isinstance(error, Refused) else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, str(error))
            raise
        log.info("operator", actor=who, verb=asked.verb, node=asked.node, done=done, answer=message)
        return health_pb2.OperatorReply(done=done, message=message)

    async def _tell_brain(self, verb: Any, node: str, who: str, reason: str) -> tuple[bool, str]:
        step = await self._brain.command(OperatorCommand(verb, node, who, reason))
        if step.reply is not None and not step.reply.accepted:
            return False, step.reply.text
        return True, "recorded; what comes of it is in the history"

    async def _tell_agent(self, node: str, command: health_pb2.Command) -> tuple[bool, str]:
        try:
            result = await self._send(node, command, COMMAND_LIMIT_S)
        except Refused as error:
            return False, str(error)
        except TimeoutError:
            return False, f"{node}: no answer within {COMMAND_LIMIT_S:g} s"
        return result.done, result.message

    async def _record(self, who: str, asked: _Asked, done: bool, message: str) -> None:
        row = {
            "at_us": time.time_ns() // 1000,
            "actor": who,
            "verb": asked.verb,
            "node": asked.node,
            "reason": asked.reason[:500],
            "done": int(done),
            "answer": message[:500],
        }
        await self._store.write(lambda c: c.execute(schema.operator_log.insert(), [row]))


class OperatorListener:
    """The socket in the run directory, mode 0600. `start`, then `stop`."""

    def __init__(self, run_dir: Path, service: OperatorService) -> None:
        self._run_dir, self._service = run_dir, service
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Raises ConfigError where the socket cannot be made."""
        server = grpc.aio.server()
        health_pb2_grpc.add_OperatorServicer_to_server(self._service, server)  # type: ignore[no-untyped-call]
        path = self._run_dir / SOCKET
        before = os.umask(0o177)  # born closed: between making and chmod anyone could connect
        try:
            self._run_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
            if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
                raise ConfigError(f"controller.run_dir: {path} is there and is no socket")
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
    """The socket as gRPC wants it. Through the folder's descriptor: a Unix socket's name may have 107 bytes only."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"unix:/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def ask(path: Path, method: str, request: Any, timeout_s: float = COMMAND_LIMIT_S + 10) -> health_pb2.OperatorReply:
    """The client's side, blocking. Raises ConnectionError with what to look at."""
    try:
        with address_of(path) as address, grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.OperatorStub(channel)  # type: ignore[no-untyped-call]
            reply: health_pb2.OperatorReply = getattr(stub, method)(request, timeout=timeout_s)
            return reply
    except OSError as error:
        raise ConnectionError(f"{path}: {error.strerror}; does a controller run here?") from error
    except grpc.RpcError as error:
        raise ConnectionError(
            f"{path}: {error.details()}; does a controller run here, and may you speak to it?"
        ) from error
