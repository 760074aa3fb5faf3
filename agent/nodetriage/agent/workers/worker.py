"""A worker: the process that touches devices. Reads requests as JSON lines, runs one check at a time, answers likewise.

Several requests may come at once. Their answers then go back together, because each message wakes the agent, which
costs more than most checks; only findings and failures go back at once. A worker imports neither structlog nor the code
that speaks to a controller: each costs a process some 10 MB. forkserver.py forks it.
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
from nodetriage.agent.reach.settings import ReachSettings
from nodetriage.agent.reach.settings import check_of as reach_check
from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.agent.site_commands import SiteCommand, check_of
from nodetriage.agent.workers import memory
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, Finding, KernelRecord, Outcome, latest
from nodetriage.checks.model.settings import replace_from

DOING_BYTES = 1024  # of the shared page that says what a worker is doing
GIVE_BACK_AFTER = 500  # requests: some hours
HOLD_S = 0.005  # how long an answer may wait for the next one
READ_BYTES = 1 << 16
_QUIET = (Outcome.OK, Outcome.SKIPPED)
_RUNNING = struct.Struct("<qd")  # the request's id (0: none), its start (CLOCK_MONOTONIC, s)
_LENGTH = struct.Struct("<H")
_TEXT_AT = _RUNNING.size + _LENGTH.size


class Setup(msgspec.Struct, tag="setup", tag_field="say", frozen=True):
    """Sent first, and again after each change: where to look, and the keys of policies that are not default.

    `quarantined`: PCI addresses of GPUs that NVML must not be asked about.
    """

    root: str
    policies: dict[str, dict[str, Any]]
    quarantined: tuple[str, ...] = ()
    programs: dict[str, tuple[str, ...]] = {}  # how to call them, by the name that checks use
    commands: dict[str, SiteCommand] = {}  # the site's own checks, by name
    reach: ReachSettings = ReachSettings()
    redfish: RedfishSettings | None = None  # None: not asked


class Request(msgspec.Struct, tag="run", tag_field="say", frozen=True):
    """Asks for a run of one check. `memory` comes from the check's last reply; null at first."""

    id: int
    check: str
    records: tuple[KernelRecord, ...] | None = ()  # None: the worker reads the log itself
    memory: msgspec.Raw = msgspec.Raw(b"null")


class Reply(msgspec.Struct, frozen=True):
    """The result of a run. `forgot` says why the memory could not be used (an upgrade changed its form)."""

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
    """What the worker is about to do, in a page shared with the agent, which reads it only when an answer is late.

    A message for each file would wake the agent thousands of times in each period.
    """

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, DOING_BYTES)

    def begin(self, request: int, what: str) -> None:
        """`request` is the id of the request; 0 when no check runs."""
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
        """The id of the request that runs now (0: none), and its start (monotonic)."""
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
    """Answers requests until the agent closes its end."""
    session = Session({check.name: check for check in (*checks, TRAFFIC)}, doing)
    incoming: msgspec.json.Decoder[Setup | Request] = msgspec.json.Decoder(Setup | Request)
    rest, answered = b"", 0
    while data := channel.recv(READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        waiting, waiting_s = b"", 0.0
        for line in lines:
            message = incoming.decode(line)
            if isinstance(message, Setup):
                session.set_up(message)
                continue
            # If the next check hung, waiting answers would be lost: so they wait briefly, and only quiet ones wait.
            if waiting and time.monotonic() - waiting_s > HOLD_S:
                channel.sendall(waiting)
                waiting = b""
            reply = session.answer(message)
            waiting_s = waiting_s if waiting else time.monotonic()
            waiting += _encoder.encode(reply) + b"\n"
            if reply.outcome not in _QUIET:
                channel.sendall(waiting)
                waiting = b""
        doing.begin(0, "")
        channel.sendall(waiting)
        if (answered := answered + len(lines)) >= GIVE_BACK_AFTER:
            memory.give_back()
            answered = 0


class Session:
    """A worker's state between requests: root and policies. The memory of a check comes with each request."""

    def __init__(self, checks: Mapping[str, Check[Any, Any]], doing: Doing) -> None:
        self._shipped = self._checks = checks
        self._doing = doing
        self._root = "/"
        self._host = Host(self._root, announce=doing.say)
        self._policies: dict[str, Any] = {}
        self._memories: dict[str, msgspec.json.Decoder[Any]] = {}

    def set_up(self, setup: Setup) -> None:
        if setup.root != self._root:  # otherwise NVML stays initialised
            self._root, self._host = setup.root, Host(setup.root, announce=self._doing.say)
        self._host.quarantine(frozenset(setup.quarantined))
        self._host.call_programs(setup.programs, setup.redfish)
        commands = {name: check_of(name, command) for name, command in setup.commands.items()}
        self._checks = {**self._shipped, **commands, "reach": reach_check(setup.reach)}
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
            result = Result(
                result.check,
                Outcome.BROKEN,
                why=f"its memory is not JSON: {error}",
                took_ms=result.took_ms,
            )
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
    """The type of the check's memory, from its annotations. Raises KeyError where it has none."""
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
