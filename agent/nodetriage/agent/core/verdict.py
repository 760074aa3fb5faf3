"""The node's open findings, and how one run of a check changes them. Pure.

A finding stays open until its fault's `latching` (faults.toml) ends it. Only a run that looked (ok, findings) can clear
a finding. Skipped, broken and hung runs leave open findings as they are, and so does every run for what it excluded.
"""

import dataclasses
import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Check, Confidence, Finding, Outcome, Scalar, Severity
from nodetriage.checks.model.faults import Fault, faults

REPEAT_EVERY_S = 60.0  # a finding gives at most one REPEATED event in this time; every occurrence is counted
SAME_EVERY_S = 3600.0  # likewise, where the evidence is the same too

SWITCHED_OFF = "the check is switched off"

Key = tuple[str, str]  # component, fault


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
    """One difference from before. Each change becomes an event."""

    kind: Kind
    check: str
    outcome: Outcome | None = None
    component: str = ""
    fault: str = ""
    severity: Severity = Severity.INFO
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    occurrences: int = 0
    confidence: Confidence = Confidence.STATE


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding that counts against the node. Times are CLOCK_BOOTTIME seconds."""

    component: str
    fault: str
    severity: Severity
    evidence: Mapping[str, Scalar]
    raised_s: float
    seen_s: float
    reported_s: float  # time of its last event
    occurrences: int = 1
    reported: int = 1  # occurrences at the last event
    missed: int = 0  # consecutive runs that looked and did not see it
    hung: bool = False  # from a run that did not answer, not from the check's judge
    confidence: Confidence = Confidence.STATE

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
    """What one check says about the node. `at_s` is the end of the run that gave `outcome`."""

    outcome: Outcome
    why: str = ""
    at_s: float = 0.0
    took_ms: float = 0.0
    open: tuple[OpenFinding, ...] = ()
    rising: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all checks say about the node in this boot."""

    boot_id: str
    checks: Mapping[str, CheckVerdict] = field(default_factory=dict)


def resumed(kept: Verdict | None, boot_id: str) -> Verdict:
    """The verdict of an earlier run of the agent in the same boot, else an empty one."""
    return kept if kept is not None and kept.boot_id == boot_id else Verdict(boot_id)


def advance(last: Verdict, check: Check[Any, Any], result: Result, now_s: float) -> tuple[Verdict, tuple[Change, ...]]:
    """Adds one result to the verdict. `now_s` is CLOCK_BOOTTIME in seconds."""
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
        result.outcome, result.why, now_s, result.took_ms, tuple(step.open.values()), tuple(step.rising.values())
    )
    elsewhere = [key for key in result.cleared if key[1] in check.ends]
    rest, ended = _ended(last, last.checks.keys() - {check.name}, elsewhere, check.name)
    return Verdict(last.boot_id, {**rest.checks, check.name: now}), (*step.changes, *ended)


def clear(last: Verdict, check: str, component: str, fault: str, actor: str) -> tuple[Verdict, tuple[Change, ...]]:
    """Clears a finding because an operator says that the fault is repaired. No change if it is not open."""
    return _ended(last, (check,), ((component, fault),), actor)


def _ended(last: Verdict, names: Iterable[str], keys: Collection[Key], by: str) -> tuple[Verdict, tuple[Change, ...]]:
    checks, changes = dict(last.checks), list[Change]()
    for name in names if keys else ():
        known = last.checks.get(name)
        gone = [f for f in known.open if f.key in keys] if known else []
        if known and gone:
            checks[name] = dataclasses.replace(known, open=tuple(f for f in known.open if f.key not in keys))
            changes += (_change(Kind.CLEARED, name, known.outcome, f, {"cleared_by": by}) for f in gone)
    return Verdict(last.boot_id, checks), tuple(changes)


def without(last: Verdict, names: Iterable[str]) -> tuple[Verdict, tuple[Change, ...]]:
    """Drops checks that no longer run: nobody would ever look again.

    Their open findings are cleared, and an OUTCOME event says that the check no longer speaks for the node.
    """
    gone = [name for name in names if name in last.checks]
    changes: list[Change] = []
    for name in gone:
        known = last.checks[name]
        changes += (_change(Kind.CLEARED, name, known.outcome, f, {"cleared_by": SWITCHED_OFF}) for f in known.open)
        evidence: dict[str, Scalar] = {"was": str(known.outcome), "why": SWITCHED_OFF}
        changes.append(Change(Kind.OUTCOME, name, Outcome.SKIPPED, evidence=evidence))
    return Verdict(last.boot_id, {n: c for n, c in last.checks.items() if n not in gone}), tuple(changes)


class _Step:
    """The working state of one `advance`: it never outlives the call."""

    def __init__(self, check: Check[Any, Any], result: Result, now_s: float, before: CheckVerdict | None) -> None:
        self.check = check
        self.result = result
        self.now_s = now_s
        self.before = before
        self.open: dict[Key, OpenFinding] = {f.key: f for f in before.open} if before else {}
        self.rising: dict[Key, Candidate] = {(r.component, r.fault): r for r in before.rising} if before else {}
        self.changes: list[Change] = []

    def outcome(self) -> None:
        """OK and FINDINGS differ by their findings; every other change of outcome is an event of its own."""
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
            if known := self.open.get(key):
                self._clear(known)
        for key, finding in seen.items():
            if key in self.open:
                self._seen_again(self.open[key], finding)
            else:
                self._new(key, finding)
        alone = self.result.excluded
        self.rising = {
            k: r for k, r in self.rising.items() if (k in seen or r.component in alone) and k not in self.open
        }
        for key, known in list(self.open.items()):
            if key not in seen and known.component not in self.result.excluded:
                self._not_seen(known)

    def hung(self) -> None:
        """A hang counts at once. A hang on another component means that the earlier call has returned."""
        seen = _worst(self.result.findings)
        for key, known in list(self.open.items()):
            if known.hung and seen and key not in seen:
                self._clear(known)
        for key, finding in seen.items():
            if key in self.open:
                self.open[key] = dataclasses.replace(self.open[key], seen_s=self.now_s, evidence=finding.evidence)
            else:
                self._raise(finding, hung=True)

    def answered(self) -> None:
        """The check answered, so findings about its hangs are over."""
        for known in [h for h in self.open.values() if h.hung]:
            self._clear(known)

    def _new(self, key: Key, finding: Finding) -> None:
        runs = self.rising[key].runs + 1 if key in self.rising else 1
        # An event is reported only once, so only conditions can wait for a second run.
        if runs >= self.check.raise_after or _latching(finding.fault) != "no":
            self._raise(finding)
        else:
            self.rising[key] = Candidate(*key, runs)

    def _raise(self, finding: Finding, hung: bool = False) -> None:
        now_s = self.now_s
        known = OpenFinding(
            finding.component, finding.fault, finding.severity, finding.evidence, now_s, now_s, now_s,
            hung=hung, confidence=finding.confidence,
        )  # fmt: skip
        self.open[known.key] = known
        self._report(Kind.RAISED, known)

    def _seen_again(self, known: OpenFinding, finding: Finding) -> None:
        event_like = _latching(known.fault) != "no"
        if event_like and finding.severity < known.severity:  # a milder event does not undo a graver one
            finding = dataclasses.replace(finding, severity=known.severity, evidence=known.evidence)
        if event_like and finding.confidence < known.confidence:  # nor does a line alone undo a witness
            finding = dataclasses.replace(finding, confidence=known.confidence)
        now = dataclasses.replace(
            known,
            severity=finding.severity,
            confidence=finding.confidence,
            evidence=finding.evidence,
            seen_s=self.now_s,
            occurrences=known.occurrences + event_like,
            missed=0,
        )
        quiet_s = REPEAT_EVERY_S if finding.evidence != known.evidence else SAME_EVERY_S
        if (finding.severity, finding.confidence) != (known.severity, known.confidence):
            now = self._report(Kind.CHANGED, now)
        elif event_like and self.now_s - known.reported_s >= quiet_s:
            now = self._report(Kind.REPEATED, now)
        self.open[known.key] = now

    def _not_seen(self, known: OpenFinding) -> None:
        fault = faults().get(known.fault)
        forgotten_s = fault.forgotten_after_s if fault else None
        missed = known.missed + 1
        cleared = _latching(known.fault) == "no" and missed >= self.check.clear_after
        forgotten = forgotten_s is not None and self.now_s - known.seen_s >= forgotten_s
        if cleared or forgotten:
            self._clear(known)
        elif known.occurrences > known.reported and self.now_s - known.reported_s >= REPEAT_EVERY_S:
            self.open[known.key] = self._report(Kind.REPEATED, known)  # occurrences that the rate limit kept back
        elif _latching(known.fault) == "no":
            self.open[known.key] = dataclasses.replace(known, missed=missed)

    def _report(self, kind: Kind, known: OpenFinding) -> OpenFinding:
        self.changes.append(_change(kind, self.check.name, self.result.outcome, known, known.evidence))
        return dataclasses.replace(known, reported_s=self.now_s, reported=known.occurrences)

    def _clear(self, known: OpenFinding) -> None:
        del self.open[known.key]
        evidence: dict[str, Scalar] = {"open_s": round(self.now_s - known.raised_s, 3)}
        self.changes.append(_change(Kind.CLEARED, self.check.name, self.result.outcome, known, evidence))


def _change(kind: Kind, check: str, outcome: Outcome, of: OpenFinding, evidence: Mapping[str, Scalar]) -> Change:
    return Change(kind, check, outcome, of.component, of.fault, of.severity, evidence, of.occurrences, of.confidence)


def _worst(findings: Iterable[Finding]) -> dict[Key, Finding]:
    """One finding for each component and fault: the gravest, if a check gave several."""
    worst: dict[Key, Finding] = {}
    for finding in findings:
        key = (finding.component, finding.fault)
        if key not in worst or finding.severity > worst[key].severity:
            worst[key] = finding
    return worst


def _latching(fault: str) -> str:
    """The fault's `latching`; an unknown fault (of a third party's check) is a condition."""
    known: Fault | None = faults().get(fault)
    return known.latching if known else "no"
