"""A site's own commands as checks of the prolog: [[hooks.command]]. They run in a worker of their own.

What a command exits with is all that counts: 0 is well, everything else, and no answer in its time, is a finding of the
check that has the command's name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable

WORKER = "site"  # their device class: a command that hangs holds up no check of ours
GRACE_S = 2.0  # for the worker to end a command that takes too long, before the worker itself counts as hung
TEXT_LIMIT = 200  # characters of what a command says, as evidence
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class HookCommand:
    """[[hooks.command]]: a program of the site that says whether this node is well"""

    name: str  # of the check, and of its fault: lower case letters, digits and "_"
    argv: tuple[str, ...]  # the program and its arguments; no shell
    timeout_s: float = 10.0  # the command is killed after it, and that is a finding
    every_s: float = 300.0  # how often it runs between jobs
    severity: Severity = Severity.WARNING  # of its failure; only critical can refuse a job

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: expected up to 40 of a-z, 0-9 and _, a letter first; got {self.name[:60]!r}")
        if not self.argv or not self.argv[0]:
            raise ValueError("argv: expected at least the program")
        if not 0.1 <= self.timeout_s <= 600 or not 1 <= self.every_s <= 86400:
            raise ValueError("expected timeout_s of 0.1 to 600 and every_s of 1 to 86400")


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended. `status` is None where it did not run to its end; `text` is what it said, or why not."""

    status: int | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class NoPolicy:
    """Nothing to set."""


def check_of(command: HookCommand) -> Check[Any, Any]:
    """A check that runs the command."""

    def read(host: Host) -> Ended:
        try:
            program = host.run(command.argv, command.timeout_s)
        except TimeoutError:
            return Ended(None, f"no answer after {command.timeout_s:g} s")
        except (Unavailable, OSError, OverflowError) as error:
            return Ended(None, str(error))
        return Ended(program.status, program.stdout.strip() or program.stderr.strip())

    def judge(now: Ended, before: Ended | None, policy: NoPolicy) -> Iterator[Finding]:
        if now.status == 0:
            return
        text = "".join(c if " " <= c <= "~" else " " for c in now.text[:TEXT_LIMIT])
        evidence: dict[str, Scalar] = {"text": text}
        if now.status is not None:
            evidence["exit_code"] = now.status
        yield Finding(command.argv[0][:TEXT_LIMIT], command.name, command.severity, evidence)

    return Check(
        name=command.name,
        read=read,
        judge=judge,
        policy=NoPolicy(),
        faults=(command.name,),
        worker=WORKER,
        every_s=command.every_s,
        timeout_s=command.timeout_s + GRACE_S,
    )
