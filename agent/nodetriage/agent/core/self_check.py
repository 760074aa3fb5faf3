"""What the agent reports on itself: a check like the others, but about its own parts. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Check, Finding, Host, Outcome, Scalar, latest
from nodetriage.checks.model.faults import faults


@dataclass(frozen=True, slots=True)
class Policy:
    """No settings."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """`lost_records`: the kernel overwrote them before the agent read them. `unjudged`: by check, those it gave up."""

    spool_trouble: str = ""
    kernel_log_trouble: str = ""
    overruns: int = 0
    lost_records: int = 0
    unjudged: Mapping[str, int] = field(default_factory=dict)


def judge(now: SelfCheck, before: SelfCheck | None, policy: Policy) -> Iterator[Finding]:
    """Losses are those since the last call."""
    if now.spool_trouble:
        yield _finding("spool", "spool_not_written", {"why": now.spool_trouble})
    if now.kernel_log_trouble:
        yield _finding("kernel_log", "kernel_log_unreadable", {"why": now.kernel_log_trouble})
    if now.overruns:
        yield _finding("kernel_log", "kernel_log_overrun", {"lost_records": now.lost_records})
    for check, lost in now.unjudged.items():
        yield _finding(check, "kernel_log_overrun", {"lost_records": lost, "check": check})


def result(now: SelfCheck) -> Result:
    """The report as the result of one run, for the verdict."""
    findings = tuple(judge(now, None, Policy()))
    return Result(SELF.name, Outcome.FINDINGS if findings else Outcome.OK, findings)


def _finding(component: str, fault: str, evidence: Mapping[str, Scalar]) -> Finding:
    return Finding(component, fault, faults()[fault].severity, evidence)


def _read(host: Host) -> SelfCheck:
    raise NotImplementedError("only the daemon can make this reading, no worker")


SELF: Check[SelfCheck, Policy] = Check(
    name="agent",
    read=_read,
    judge=judge,
    policy=Policy(),
    faults=("spool_not_written", "kernel_log_unreadable", "kernel_log_overrun"),
    next_state=latest,
)
