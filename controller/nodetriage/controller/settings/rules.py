"""policy.toml as values: which fault costs what. policy_file.py reads it."""

import enum
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from nodetriage.checks.model import Confidence, Severity
from nodetriage.checks.model.faults import Fault, faults
from nodetriage.controller.settings.limits import (
    BreakerLimits,
    CommonMode,
    DrainLimits,
    HookLimits,
    Lemons,
    Maintenance,
    Shadow,
)


class Response(enum.StrEnum):
    """What a finding leads to, mildest first."""

    RECORD = "record"
    SHADOW = "shadow"
    DRAIN_AFTER_JOB = "drain_after_job"
    DRAIN_AND_REQUEUE = "drain_and_requeue"

    @property
    def rank(self) -> int:
        return _RANK[self]

    @property
    def drains(self) -> bool:
        return self.rank >= Response.DRAIN_AFTER_JOB.rank


_RANK = {response: rank for rank, response in enumerate(Response)}


class Mode(enum.StrEnum):
    OBSERVE = "observe"  # every action is recorded as what would have been done
    RECOMMEND = "recommend"  # the same, and a notice tells a person
    ENFORCE = "enforce"


Returns = Literal["operator", "checks_pass"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Empty fields match everything; the rule that names most of them wins, the later of equals."""

    action: Response
    fault: str = ""  # a code
    severity: Severity | None = None
    partition: str = ""  # a node in it, by the scheduler's name
    profile: str = ""  # of the node's expected hardware
    confirm: int = 1  # how often agents must report it before it counts
    hold_s: float = 0.0  # how long it must have been known before it counts
    returns: Returns = "operator"  # who brings the node back
    min_confidence: Confidence | None = None  # what the finding's confidence must be; None: the policy's
    shadow: bool = False  # it only says what it would do; what the other rules say is done

    def __post_init__(self) -> None:
        if self.confirm < 1 or self.hold_s < 0:
            raise ValueError("expected confirm of at least 1 and hold_s of at least 0")

    @property
    def fields_named(self) -> int:
        return sum((self.fault != "", self.severity is not None, self.partition != "", self.profile != ""))


@dataclass(frozen=True, slots=True)
class Requeues:
    """Protects the queue from a job that keeps meeting bad nodes, or makes them."""

    max_per_job: int = 5  # within the window; then it stays held until an operator releases it
    window_s: float = 86400.0  # in which requeues of one job are counted
    backoff_s: float = 300.0  # after the first; doubled with each further one
    leave_within_s: float = 0.0  # how long jobs may run on a node drained by drain_after_job; 0: to their end
    interactive: Literal["notify", "cancel"] = "notify"  # a job that Slurm cannot requeue: say so, or end it


@functools.cache
def _plain_rule(response: Response) -> Rule:
    return Rule(response)


def _by_severity() -> Mapping[str, Response]:
    return {
        "info": Response.RECORD,
        "warning": Response.RECORD,
        "major": Response.DRAIN_AFTER_JOB,
        "critical": Response.DRAIN_AND_REQUEUE,
    }


def _not_trusted(fault: Fault | None) -> str:
    """Why a fault of faults.toml, or one that is missing there, is in shadow; "" where it may act."""
    if fault is None:
        return "the controller does not know the fault ([shadow] trusted)"
    return "" if fault.trusted else "the fault is new: faults.toml does not trust it ([shadow] trusted)"


@dataclass(frozen=True, slots=True)
class Policy:
    """policy.toml, whole. docs/policy.md explains each key."""

    mode: Mode = Mode.OBSERVE
    adopt_as: Literal["healthy", "burn_in"] = "healthy"
    resumed_by_hand: Literal["drain_again", "accept"] = "drain_again"
    min_confidence: Confidence = Confidence.DEVICE  # a finding with less leads to no action
    return_hold_s: float = 600.0  # how long a node must be free of faults before it comes back by itself
    severity: Mapping[str, Response] = field(default_factory=_by_severity)
    rule: tuple[Rule, ...] = ()
    drain_limits: DrainLimits = field(default_factory=DrainLimits)
    requeue: Requeues = field(default_factory=Requeues)
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    common_mode: CommonMode = field(default_factory=CommonMode)
    lemon: Lemons = field(default_factory=Lemons)
    maintenance: Maintenance = field(default_factory=Maintenance)
    shadow: Shadow = field(default_factory=Shadow)
    hooks: HookLimits = field(default_factory=HookLimits)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.severity) - set(_by_severity())):
            raise ValueError(f"severity: unknown {', '.join(unknown)}; known: {', '.join(_by_severity())}")
        known = {"", *faults(), *self.shadow.trusted}
        for number, rule in enumerate(self.rule, 1):
            if rule.fault not in known:
                raise ValueError(
                    f"rule {number}: fault = {rule.fault!r}: expected a fault code; `nodetriage explain` "
                    "lists them, and [shadow] trusted adds those of a site's own checks"
                )

    def rule_for(self, fault: str, severity: Severity, partitions: Iterable[str], profile: str) -> Rule:
        """The rule that decides; where none matches, the one for the severity."""
        found = self.by_severity(severity)
        if not self.rule:
            return found
        for rule in self.matching(fault, severity, partitions, profile):
            if not rule.shadow and rule.fields_named >= found.fields_named:
                found = rule
        return found

    def least_confidence(self, rule: Rule) -> Confidence:
        """From which confidence on a finding counts for this rule."""
        return self.min_confidence if rule.min_confidence is None else rule.min_confidence

    def by_severity(self, severity: Severity) -> Rule:
        return _plain_rule(self.severity.get(severity.name.lower(), Response.RECORD))

    def matching(self, fault: str, severity: Severity, partitions: Iterable[str], profile: str) -> tuple[Rule, ...]:
        """Every rule that speaks of this, shadow or not, in the file's order."""
        of = set(partitions)
        return tuple(
            rule
            for rule in self.rule
            if rule.fault in ("", fault)
            and rule.severity in (None, severity)
            and (rule.partition == "" or rule.partition in of)
            and rule.profile in ("", profile)
        )

    def would(self, fault: str, severity: Severity, partitions: Iterable[str], profile: str) -> Rule:
        """The rule that would decide if every shadow rule were in force."""
        found = self.by_severity(severity)
        for rule in self.matching(fault, severity, partitions, profile):
            if rule.action is not Response.SHADOW and rule.fields_named >= found.fields_named:
                found = rule
        return found

    def untrusted(self, check: str, fault: str) -> str:
        """Why a fault only leads to notices so far; "" where it leads to actions."""
        if check in self.shadow.checks:
            return f"the check {check} is new ([shadow] checks)"
        if fault in self.shadow.faults:
            return "the fault is in shadow ([shadow] faults)"
        return "" if fault in self.shadow.trusted else _not_trusted(faults().get(fault))


__all__ = [
    "BreakerLimits",
    "CommonMode",
    "DrainLimits",
    "HookLimits",
    "Lemons",
    "Maintenance",
    "Mode",
    "Policy",
    "Requeues",
    "Response",
    "Rule",
    "Shadow",
]
