"""Compares what a node's agent states as open with what is known of the node, in both directions. Pure.

Events alone drift: an agent loses its state, a database is restored, a full spool drops events. The differences become
events of the controller's own in the history, about the agent's boot; the policy then takes them like any others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.policy.findings import MAX_FINDINGS
from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.policy.state import EventKind, FindingFact, NodeFacts
from nodetriage.service import open_set

GHOST = "its agent does not have it open, and its check has looked"
NOT_RUN = "its agent does not have it open, and no such check runs there"
UNKNOWN = "its agent has it open, and it was not in the database"
OTHER = "its agent has it open with this severity and confidence"
NEW_BOOT = "its agent speaks of a boot that was not in the database"

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class StatedFinding:
    """One finding that the agent has open."""

    check: str
    component: str
    fault: str
    severity: Severity
    confidence: Confidence

    @property
    def key(self) -> Key:
        return self.check, self.component, self.fault


@dataclass(frozen=True, slots=True)
class StatedSet:
    """All that an agent has open, with its events up to `as_of_seq` taken into account.

    `checks` are those that run there: whether each has looked. An agent that lost its state says nothing about a check
    that has not run yet.
    """

    boot_id: str
    as_of_seq: int
    findings: tuple[StatedFinding, ...] = ()
    checks: dict[str, bool] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Correction:
    """What the history lacks about a node; `why` becomes evidence of the event."""

    kind: EventKind
    check: str = ""
    component: str = ""
    fault: str = ""
    severity: Severity = Severity.INFO
    confidence: Confidence = Confidence.STATE
    why: str = ""


def digest(node: NodeFacts | None) -> bytes:
    """Of what is known to be open in the node's boot, without the controller's own findings."""
    return open_set.digest(_entry(f) for f in _of_agent(node)) if node is not None else open_set.EMPTY


def differences(node: NodeFacts | None, stated: StatedSet) -> tuple[Correction, ...]:
    """What makes the two agree. A finding with a newer event than the stated set takes into account is left alone.

    Of a node with more open findings than are kept, only those are learned that are graver than one that is kept.
    """
    if node is None or node.boot_id != stated.boot_id:
        started = Correction(EventKind.STARTED, why=NEW_BOOT)
        return (started, *(_of(EventKind.RAISED, f, UNKNOWN) for f in stated.findings))
    known = {f.key: f for f in node.findings if f.boot_id == stated.boot_id}
    there = {f.key for f in stated.findings}
    fits = [f for f in stated.findings if f.key in known or f.severity > _least(node)]
    found = [c for f in fits if (c := _learned(known.get(f.key), f, stated)) is not None]
    ghosts = (f for f in _of_agent(node) if f.key not in there and f.seq <= stated.as_of_seq)
    if not stated.left_out:
        found += (c for f in ghosts if (c := _ended(f, stated)) is not None)
    return tuple(found)


def _least(node: NodeFacts) -> int:
    """What a further finding must be graver than: the mildest one, where no more are kept; -1 where there is room."""
    if len(node.findings) < MAX_FINDINGS or any(not f.is_open for f in node.findings):
        return -1
    return min(f.severity for f in node.findings)


def _learned(known: FindingFact | None, stated: StatedFinding, of: StatedSet) -> Correction | None:
    if known is None:
        return _of(EventKind.RAISED, stated, UNKNOWN)
    if known.seq > of.as_of_seq:
        return None
    if not known.is_open:
        return _of(EventKind.RAISED, stated, UNKNOWN)
    same = (known.severity, known.confidence) == (stated.severity, stated.confidence)
    return None if same else _of(EventKind.CHANGED, stated, OTHER)


def _ended(ghost: FindingFact, stated: StatedSet) -> Correction | None:
    runs = ghost.check in stated.checks
    if runs and not stated.checks[ghost.check]:
        return None
    why = GHOST if runs else NOT_RUN
    what = (ghost.check, ghost.component, ghost.fault, ghost.severity, ghost.confidence)
    return Correction(EventKind.CLEARED, *what, why)


def _of(kind: EventKind, stated: StatedFinding, why: str) -> Correction:
    what = (stated.check, stated.component, stated.fault, stated.severity, stated.confidence)
    return Correction(kind, *what, why)


def _of_agent(node: NodeFacts) -> Iterable[FindingFact]:
    return (f for f in node.findings if f.is_open and f.boot_id == node.boot_id != CONTROLLER_BOOT)


def _entry(finding: FindingFact) -> open_set.Entry:
    key = (finding.check, finding.component, finding.fault)
    return open_set.Entry(*key, int(finding.severity), int(finding.confidence))
