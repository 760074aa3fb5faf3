"""A site's own commands as checks: [checks.command.NAME]. They run in a worker of their own, in no shell.

A command says by its exit code how the node is, as Nagios plugins do (Monitoring Plugins Development Guidelines,
"Plugin Return Codes") or as NHC's checks do (0 or not 0). One that cannot be run, or gives no answer in its time,
leaves the node unknown: a script on a file server that is away must not look like a fault of every node.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable

WORKER = "site"  # their device class: a command that hangs holds up no check of ours
GRACE_S = 2.0  # for the worker to end a command that takes too long, before the worker itself counts as hung
TEXT_LIMIT = 200  # characters of what a command prints, as evidence
RUN_LIMIT = 4096  # characters of its command line
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OK, _WARNING, _CRITICAL = range(3)


@dataclass(frozen=True, slots=True)
class SiteCommand:
    """[checks.command.NAME]: a program of the site that says whether this node is well"""

    run: str  # the command line; words are split as a shell does, and no shell runs it ("sh -c '...'" does)
    severity: Severity = Severity.MAJOR  # of its failure; only critical can refuse a job
    every_s: float = 300.0  # how often it runs between jobs
    timeout_s: float = 10.0  # the command is killed after it, and the check is broken: the node is not known
    exit_codes: Literal["nagios", "nhc"] = "nagios"  # nagios: 1 warning, 2 failure, 3 unknown; nhc: all but 0 failure
    enabled: bool = True
    raise_after: int = 1  # how many runs in a row must show a failure before it counts
    clear_after: int = 1  # how many must no longer show it

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("run: expected at least the program, got an empty command line")
        if not 0.1 <= self.timeout_s <= 600 or not 1 <= self.every_s <= 86400:
            raise ValueError("expected timeout_s of 0.1 to 600 and every_s of 1 to 86400")
        if self.raise_after < 1 or self.clear_after < 1:
            raise ValueError("expected raise_after and clear_after of at least 1")

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments. Raises ValueError for a line that is no list of words."""
        if len(self.run) > RUN_LIMIT or "\0" in self.run or "\n" in self.run:
            raise ValueError(f"run: expected one line of at most {RUN_LIMIT} characters")
        try:
            return tuple(shlex.split(self.run))
        except ValueError as error:
            raise ValueError(f"run: {self.run[:60]!r}: {error}; expected words as in a shell") from None


def check_name(name: str) -> str:
    """The name, if a command may have it. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of up to 40 of a-z, 0-9 and _, a letter first; got {name[:60]!r}")
    return name


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended; `text` is the first line that it printed, at most TEXT_LIMIT characters of ASCII."""

    status: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class NoPolicy:
    """Nothing to set."""


def check_of(name: str, command: SiteCommand) -> Check[Any, Any]:
    """A check that runs the command. Its fault has its name."""
    argv = command.argv

    def read(host: Host) -> Ended:
        try:
            program = host.run(argv, command.timeout_s)
        except TimeoutError:
            raise TimeoutError(f"no answer after {command.timeout_s:g} s") from None
        except Unavailable as error:  # of our own checks that means "nothing to look at"; here the site asks for it
            raise FileNotFoundError(str(error)) from None
        ended = Ended(program.status, _first_line(program.stdout) or _first_line(program.stderr))
        if command.exit_codes == "nagios" and not _OK <= ended.status <= _CRITICAL:
            raise ValueError(f"exit code {ended.status}: {ended.text}; expected 0 ok, 1 warning or 2 critical")
        if ended.status < 0:
            raise ValueError(f"signal {-ended.status} ended the command")
        return ended

    def judge(now: Ended, before: Ended | None, policy: NoPolicy) -> Iterator[Finding]:
        if now.status == _OK:
            return
        is_warning = command.exit_codes == "nagios" and now.status == _WARNING
        severity = min(command.severity, Severity.WARNING) if is_warning else command.severity
        evidence: dict[str, Scalar] = {"exit_code": now.status, "text": now.text}
        yield Finding(argv[0][:TEXT_LIMIT], name, severity, evidence)

    return Check(
        name=name,
        read=read,
        judge=judge,
        policy=NoPolicy(),
        faults=(name,),
        worker=WORKER,
        every_s=command.every_s,
        timeout_s=command.timeout_s + GRACE_S,
        raise_after=command.raise_after,
        clear_after=command.clear_after,
    )


def _first_line(output: str) -> str:
    """Its text without control characters, and without the figures that a Nagios plugin prints behind "|"."""
    lines = output[: RUN_LIMIT * 4].lstrip().splitlines()
    line = lines[0].partition("|")[0] if lines else ""
    return "".join(c if " " <= c <= "~" else " " for c in line[:TEXT_LIMIT]).strip()
