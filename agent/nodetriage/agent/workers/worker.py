"""A worker: the process that touches devices. JSON lines in, one check run, JSON lines out. Serial.

Requests may come several at once; their answers then go back together, as each wakes the agent, which costs more than
most checks. What the agent has to know goes at once. Imports neither structlog nor what speaks to a controller: each
costs a process some 10 MB. It is forked by forkserver.py.
"""

import importlib
import mmap
import socket
import struct
import time
import typing
from collections.abc import Iterable, Mapping
from pathlib import PurePath, PurePosixPath
from typing import Any

import msgspec

from nodetriage.agent.core.result import Result
from nodetriage.agent.machine.host import Host
from nodetriage.agent.machine.port_bytes import TRAFFIC
from nodetriage.agent.site_commands import HookCommand, check_of
from nodetriage.agent.workers import memory
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, Finding, KernelRecord, Outcome, latest
from nodetriage.checks.model.settings import replace_from

DOING_BYTES = 1024  # of the page in which a worker says what it is doing
GIVE_BACK_AFTER = 500  # requests: some hours
HOLD_S = 0.005  # how long an answer may wait for the next one
READ_BYTES = 1 << 16
_QUIET = (Outcome.OK, Outcome.SKIPPED)
_RUNNING = struct.Struct("<qd")  # the request's id, 0 between two; when it began (CLOCK_MONOTONIC, s)
_LENGTH = struct.Struct("<H")
_TEXT_AT = _RUNNING.size + _LENGTH.size


class Setup(msgspec.Struct, tag="setup", tag_field="say", frozen=True):
    """The first line, and again after each change: where to look, and the policies' keys that are not default.

    `quarantined`: PCI addresses of GPUs that must not be asked anything.
    """

    root: str
    policies: dict[str, dict[str, Any]]
    quarantined: tuple[str, ...] = ()
    programs: dict[str, tuple[str, ...]] = {}  # how this site calls them, by the name that checks use
    commands: tuple[HookCommand, ...] = ()  # the site's own checks


class Request(msgspec.Struct, tag="run", tag_field="say", frozen=True):
    """Run one check. `memory` is what the check's last reply asked to keep; None at first."""

    id: int
    check: str
    records: tuple[KernelRecord, ...] | None = ()  # None: the worker reads the log itself
    memory: msgspec.Raw = msgspec.Raw(b"null")


class Reply(msgspec.Struct, frozen=True):
    """What the run gave. `forgot` says why the memory could not be used (an upgrade changed its shape)."""

    id: int
    outcome: Outcome
    findings: tuple[Finding, ...]
    cleared: tuple[tuple[str, str], ...]
    why: str
    memory: msgspec.Raw
    took_ms: float
    forgot: str = ""
    excluded: tuple[str, ...] = ()
    abandoned_programs: int = 0  # of this worker, at the end of the run


class Doing:
    """What the worker is about to do, in a page shared with the agent, who reads it only when an answer is late.

    A line in the pipe for each file that is read would wake the agent thousands of times a round.
    """

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, DOING_BYTES)

    def begin(self, request: int, what: str) -> None:
        """`request` is its id, 0 when nothing is being run."""
        self.say(what)
        self._page[: _RUNNING.size] = _RUNNING.pack(request, time.monotonic())

    def say(self, what: str) -> None:
        text = what.encode("utf-8", "replace")[: DOING_BYTES - _TEXT_AT]
        self._page[_RUNNING.size : _TEXT_AT] = _LENGTH.pack(0)
        self._page[_TEXT_AT : _TEXT_AT + len(text)] = text
        self._page[_RUNNING.size : _TEXT_AT] = _LENGTH.pack(len(text))

    def text(self) -> str:
        (length,) = _LENGTH.unpack(self._page[_RUNNING.size : _TEXT_AT])
        return self._page[_TEXT_AT : _TEXT_AT + length].decode("utf-8", "replace")

    def running(self) -> tuple[int, float]:
        """The id of the request that is being run, 0 for none, and when it began (monotonic)."""
        request, began_s = _RUNNING.unpack(self._page[: _RUNNING.size])
        return request, began_s

    def close(self) -> None:
        self._page.close()


def catalogue(name: str) -> tuple[Check[Any, Any], ...]:
    """The checks at MODULE:ATTRIBUTE."""
    module, _, attribute = name.partition(":")
    checks: tuple[Check[Any, Any], ...] = getattr(importlib.import_module(module), attribute)
    return checks


def serve(channel: socket.socket, checks: Iterable[Check[Any, Any]], doing: Doing) -> None:
    """Answers until the agent closes its end."""
    session = Session({check.name: check for check in (*checks, TRAFFIC)}, doing)
    incoming: msgspec.json.Decoder[Setup | Request] = msgspec.json.Decoder(Setup | Request)
    rest, answered = b"", 0
    while data := channel.recv(READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        held, held_s = b"", 0.0
        for line in lines:
            message = incoming.decode(line)
            if isinstance(message, Setup):
                session.set_up(message)
                continue
            # Answers that wait would be lost if the next check hung: so not long, and none that tells of anything.
            if held and time.monotonic() - held_s > HOLD_S:
                channel.sendall(held)
                held = b""
            reply = session.answer(message)
            held, held_s = held + _encoder.encode(reply) + b"\n", held_s if held else time.monotonic()
            if reply.outcome not in _QUIET:
                channel.sendall(held)
                held = b""
        doing.begin(0, "")
        channel.sendall(held)
        if (answered := answered + len(lines)) >= GIVE_BACK_AFTER:
            memory.give_back()
            answered = 0


class Session:
    """What a worker knows between requests: root and policies. The checks' memories travel with each request."""

    def __init__(self, checks: Mapping[str, Check[Any, Any]], doing: Doing) -> None:
        self._shipped = self._checks = checks
        self._doing = doing
        self._root = "/"
        self._host = Host(self._root, announce=doing.say)
        self._policies: dict[str, Any] = {}
        self._memories: dict[str, msgspec.json.Decoder[Any]] = {}

    def set_up(self, setup: Setup) -> None:
        if setup.root != self._root:  # else what it holds open (NVML) stays so
            self._root, self._host = setup.root, Host(setup.root, announce=self._doing.say)
        self._host.quarantine(frozenset(setup.quarantined))
        self._host.call_programs(setup.programs)
        commands = {command.name: check_of(command) for command in setup.commands}
        self._checks = {**self._shipped, **commands}
        self._policies = {
            name: replace_from(type(self._checks[name].policy), self._checks[name].policy, table, "agent", name)
            for name, table in setup.policies.items()
            if name in self._checks
        }

    def answer(self, request: Request) -> Reply:
        check = self._checks.get(request.check)
        if check is None:
            return self._reply(request, Result(request.check, Outcome.BROKEN, why="the worker has no such check"), "")
        self._doing.begin(request.id, f"check {check.name}")
        before, forgot = self._recalled(check, request.memory)
        host = self._host.for_check(check, request.records)
        return self._reply(request, run(check, host, self._policies.get(check.name, check.policy), before), forgot)

    def _recalled(self, check: Check[Any, Any], memory: msgspec.Raw) -> tuple[Any, str]:
        if bytes(memory) == b"null":
            return None, ""
        try:
            if check.name not in self._memories:
                self._memories[check.name] = msgspec.json.Decoder(memory_type(check), dec_hook=_restored)
            return self._memories[check.name].decode(memory), ""
        except (msgspec.MsgspecError, TypeError, NameError, KeyError) as error:
            return None, f"{type(error).__name__}: {error}"

    def _reply(self, request: Request, result: Result, forgot: str) -> Reply:
        try:
            memory = msgspec.Raw(_encoder.encode(result.memory))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            memory = msgspec.Raw(b"null")
            result = Result(result.check, Outcome.BROKEN, why=f"its memory is no JSON: {error}", took_ms=result.took_ms)
        return Reply(
            request.id,
            result.outcome,
            result.findings,
            result.cleared,
            result.why,
            memory,
            result.took_ms,
            forgot,
            result.excluded,
            self._host.abandoned_programs,
        )


def memory_type(check: Check[Any, Any]) -> Any:
    """The type that the check's memory has, from its annotations. Raises KeyError where it has none."""
    return typing.get_type_hints(check.read if check.next_state is latest else check.next_state)["return"]


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"cannot keep a {type(value).__name__}")


def _restored(kind: type, value: Any) -> Any:
    if issubclass(kind, PurePath) and isinstance(value, str):
        return PurePosixPath(value)
    raise TypeError(f"cannot restore a {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
