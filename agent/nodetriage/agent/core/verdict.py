"""From what one run of a check found to what is held against the node, and what changed. Pure.

A finding is held until its fault's `ends` says otherwise (faults.toml). Only a run that looked (ok, findings) can
clear one; skipped, broken and hung runs leave what is held as it is, and so does any run on parts that it left alone.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Check, Finding, Outcome, Scalar, Severity
from nodetriage.checks.model.faults import Fault, faults

REPEAT_EVERY_S = 60.0  # at most one REPEATED event of a finding in this time; occurrences are counted all the same
SAME_EVERY_S = 3600.0  # the same, where not even the evidence differs

Key = tuple[str, str]  # part, fault


class Kind(enum.IntEnum):
    """The numbers are the wire's (EventKind)."""

    RAISED = 1
    CHANGED = 2
    REPEATED = 3
    CLEARED = 4
    OUTCOME = 5
    AGENT_STARTED = 6
    AGENT_STOPPED = 7
    LOST = 8


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is different from before: what becomes an event."""

    kind: Kind
    check: str
    outcome: Outcome | None = None
    component: str = ""
    fault: str = ""
    severity: Severity = Severity.INFO
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    occurrences: int = 0


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding that counts. Times are CLOCK_BOOTTIME seconds."""

    component: str
    fault: str
    severity: Severity
    evidence: Mapping[str, Scalar]
    raised_s: float
    seen_s: float
    told_s: float  # when its last event was made
    occurrences: int = 1
    told: int = 1  # occurrences at the last event
    missed: int = 0  # runs in a row that looked and did not see it
    hung: bool = False  # made by a run that did not answer, not by the check's judge

    @property
    def key(self) -> Key:
        return self.component, self.fault


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding seen in too few runs to count yet (Check.raise_after)."""

    component: str
    fault: str
    runs: int


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What is known through one check. `at_s` is when the run that gave `outcome` ended."""

    outcome: Outcome
    why: str = ""
    at_s: float = 0.0
    took_ms: float = 0.0
    held: tuple[OpenFinding, ...] = ()
    rising: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is held against this node in this boot."""

    boot_id: str
    checks: Mapping[str, CheckVerdict] = field(default_factory=dict)


def resumed(kept: Verdict | None, boot_id: str) -> Verdict:
    """What an earlier run of the agent knew, if the machine has not been booted since."""
    return kept if kept is not None and kept.boot_id == boot_id else Verdict(boot_id)


def advance(last: Verdict, check: Check[Any, Any], result: Result, now_s: float) -> tuple[Verdict, tuple[Change, ...]]:
    """One result into the verdict. `now_s` is CLOCK_BOOTTIME in seconds."""
    before = last.checks.get(check.name)
    step = _Step(check, result, now_s, before)
    step.outcome()
    if result.outcome in (Outcome.OK, Outcome.FINDINGS) or result.excluded:
        step.looked()
    elif result.outcome is Outcome.HUNG:
        step.hung()
    else:
        step.answered()
    now = CheckVerdict(
        result.outcome, result.why, now_s, result.took_ms, tuple(step.held.values()), tuple(step.rising.values())
    )
    return Verdict(last.boot_id, {**last.checks, check.name: now}), tuple(step.changes)


def clear(last: Verdict, check: str, component: str, fault: str, actor: str) -> tuple[Verdict, tuple[Change, ...]]:
    """An operator's word that a fault is dealt with. No change if it is not held."""
    known = last.checks.get(check)
    gone = [h for h in known.held if h.key == (component, fault)] if known else []
    if known is None or not gone:
        return last, ()
    now = dataclasses.replace(known, held=tuple(h for h in known.held if h not in gone))
    changes = tuple(_cleared(check, known.outcome, h, {"cleared_by": actor}) for h in gone)
    return Verdict(last.boot_id, {**last.checks, check: now}), changes


def forget_checks(last: Verdict, names: Iterable[str]) -> tuple[Verdict, tuple[Change, ...]]:
    """Clears what is held through checks that are no longer run: nobody would ever look again."""
    gone = [n for n in names if n in last.checks]
    changes = tuple(
        _cleared(n, last.checks[n].outcome, h, {"cleared_by": "the check is not enabled any more"})
        for n in gone
        for h in last.checks[n].held
    )
    return Verdict(last.boot_id, {n: c for n, c in last.checks.items() if n not in gone}), changes


class _Step:
    """The working state of one `advance`: it never outlives the call."""

    def __init__(self, check: Check[Any, Any], result: Result, now_s: float, before: CheckVerdict | None) -> None:
        self.check = check
        self.result = result
        self.now_s = now_s
        self.before = before
        self.held: dict[Key, OpenFinding] = {h.key: h for h in before.held} if before else {}
        self.rising: dict[Key, Candidate] = {(r.component, r.fault): r for r in before.rising} if before else {}
        self.changes: list[Change] = []

    def outcome(self) -> None:
        """OK to FINDINGS and back is told by the findings themselves; every other change is an event of its own."""
        looked = (Outcome.OK, Outcome.FINDINGS)
        was = self.before.outcome if self.before else Outcome.OK
        now = self.result.outcome
        if was == now or (was in looked and now in looked):
            return
        bad = now in (Outcome.BROKEN, Outcome.HUNG)
        evidence: dict[str, Scalar] = {"was": str(was)} if self.before else {}
        if self.result.why:
            evidence["why"] = self.result.why
        severity = Severity.WARNING if bad else Severity.INFO
        self.changes.append(Change(Kind.OUTCOME, self.check.name, now, severity=severity, evidence=evidence))

    def looked(self) -> None:
        self.answered()
        seen = _worst(self.result.findings)
        for key in self.result.cleared:
            if held := self.held.get(key):
                self._clear(held)
        for key, finding in seen.items():
            if key in self.held:
                self._seen_again(self.held[key], finding)
            else:
                self._new(key, finding)
        alone = self.result.excluded
        self.rising = {
            k: r for k, r in self.rising.items() if (k in seen or r.component in alone) and k not in self.held
        }
        for key, held in list(self.held.items()):
            if key not in seen and held.component not in self.result.excluded:
                self._not_seen(held)

    def hung(self) -> None:
        """A hang counts at once. A further hang elsewhere means that the earlier call came back."""
        seen = _worst(self.result.findings)
        for key, held in list(self.held.items()):
            if held.hung and seen and key not in seen:
                self._clear(held)
        for key, finding in seen.items():
            if key in self.held:
                self.held[key] = dataclasses.replace(self.held[key], seen_s=self.now_s, evidence=finding.evidence)
            else:
                self._raise(finding, hung=True)

    def answered(self) -> None:
        """Whatever it said, it answered: no hang is left."""
        for held in [h for h in self.held.values() if h.hung]:
            self._clear(held)

    def _new(self, key: Key, finding: Finding) -> None:
        runs = self.rising[key].runs + 1 if key in self.rising else 1
        # Something that happened once will not be seen twice: only conditions are waited for.
        if runs >= self.check.raise_after or _latching(finding.fault) != "no":
            self._raise(finding)
        else:
            self.rising[key] = Candidate(*key, runs)

    def _raise(self, finding: Finding, hung: bool = False) -> None:
        now_s = self.now_s
        held = OpenFinding(
            finding.component, finding.fault, finding.severity, finding.evidence, now_s, now_s, now_s, hung=hung
        )
        self.held[held.key] = held
        self._tell(Kind.RAISED, held)

    def _seen_again(self, held: OpenFinding, finding: Finding) -> None:
        event_like = _latching(held.fault) != "no"
        if event_like and finding.severity < held.severity:  # an event that happened is not undone by a milder one
            finding = dataclasses.replace(finding, severity=held.severity, evidence=held.evidence)
        now = dataclasses.replace(
            held,
            severity=finding.severity,
            evidence=finding.evidence,
            seen_s=self.now_s,
            occurrences=held.occurrences + event_like,
            missed=0,
        )
        quiet_s = REPEAT_EVERY_S if finding.evidence != held.evidence else SAME_EVERY_S
        if finding.severity != held.severity:
            now = self._tell(Kind.CHANGED, now)
        elif event_like and self.now_s - held.told_s >= quiet_s:
            now = self._tell(Kind.REPEATED, now)
        self.held[held.key] = now

    def _not_seen(self, held: OpenFinding) -> None:
        fault = faults().get(held.fault)
        forgotten_s = fault.forgotten_after_s if fault else None
        missed = held.missed + 1
        cleared = _latching(held.fault) == "no" and missed >= self.check.clear_after
        forgotten = forgotten_s is not None and self.now_s - held.seen_s >= forgotten_s
        if cleared or forgotten:
            self._clear(held)
        elif held.occurrences > held.told and self.now_s - held.told_s >= REPEAT_EVERY_S:
            self.held[held.key] = self._tell(Kind.REPEATED, held)  # those that the rate limit held back
        elif _latching(held.fault) == "no":
            self.held[held.key] = dataclasses.replace(held, missed=missed)

    def _tell(self, kind: Kind, held: OpenFinding) -> OpenFinding:
        self.changes.append(
            Change(
                kind,
                self.check.name,
                self.result.outcome,
                held.component,
                held.fault,
                held.severity,
                held.evidence,
                held.occurrences,
            )
        )
        return dataclasses.replace(held, told_s=self.now_s, told=held.occurrences)

    def _clear(self, held: OpenFinding) -> None:
        del self.held[held.key]
        evidence: dict[str, Scalar] = {"held_s": round(self.now_s - held.raised_s, 3)}
        self.changes.append(_cleared(self.check.name, self.result.outcome, held, evidence))


def _cleared(check: str, outcome: Outcome, held: OpenFinding, evidence: Mapping[str, Scalar]) -> Change:
    return Change(Kind.CLEARED, check, outcome, held.component, held.fault, held.severity, evidence, held.occurrences)


def _worst(findings: Iterable[Finding]) -> dict[Key, Finding]:
    """One finding for each part and fault: the gravest, if a check gave several."""
    worst: dict[Key, Finding] = {}
    for finding in findings:
        key = (finding.component, finding.fault)
        if key not in worst or finding.severity > worst[key].severity:
            worst[key] = finding
    return worst


def _latching(fault: str) -> str:
    """An unknown fault (of a third party's check) is a condition."""
    known: Fault | None = faults().get(fault)
    return known.latching if known else "no"
