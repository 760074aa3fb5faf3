"""Groups events that belong together into incidents, by node, device and time. Pure.

A GPU that falls off the bus says so as an AER error, an Xid and a line in the BMC's event log: one incident. Its
primary cause is the finding that is serious, no mere symptom, nearest to the hardware by the taxonomy; of equals the
first.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.controller.policy.state import ActionKind, EventKind, NodeState, Transition

GAP = timedelta(minutes=5)  # the longest time between two symptoms of one incident
AT_ONCE = timedelta(seconds=10)  # symptoms of different kinds of device within this time have one cause
BEFORE = timedelta(minutes=1)  # a drain may be decided before the clock of a node says that the fault began
# Findings that name no single device.
_WHOLE_NODE = ("host", "bmc", "agent")
_PCI = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Symptom:
    """One event about a finding. `names` are the devices that its part and its evidence name."""

    cursor: int
    node: str
    at: datetime  # the node's clock
    known_at: datetime  # ours
    kind: EventKind
    check: str
    component: str
    fault: str
    severity: Severity
    names: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.check, self.component, self.fault)


@dataclass(frozen=True, slots=True)
class IncidentAction:
    """One recorded action."""

    id: str
    kind: str  # an ActionKind, or "notify"
    node: str
    incident: str
    job: str
    status: str
    outcome: str
    text: str
    decided_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Drain:
    """One row of incidents: a node that was to be drained, or ("" as node) something of the whole fleet."""

    incident: str
    node: str
    causes: tuple[str, ...]
    component: str
    opened_at: datetime
    drained_at: datetime | None
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Incident:
    """`stages` in seconds, None where a stage was not come to."""

    id: str
    kind: Literal["fault", "fleet", "planned"]
    node: str
    fault: str  # of the primary cause; of a planned stop its reason
    component: str
    severity: Severity
    faults: tuple[str, ...]
    began_at: datetime
    ended_at: datetime | None
    stages: Mapping[str, float | None] = field(default_factory=dict)
    by_hand: bool = False  # a person had a part in its end
    symptoms: tuple[Symptom, ...] = ()


def device_names(component: str, evidence: Iterable[str]) -> frozenset[str]:
    """The devices that a finding names, written one way: UUIDs as they are, PCI addresses without their function."""
    found = {component} if component else set()
    for text in (component, *evidence):
        found |= {match[1].lower() for match in _PCI.finditer(text)}
        found |= set(re.findall(r"\bGPU-[0-9A-Fa-f-]{6,}", text))
    return frozenset(found)


def group(symptoms: Iterable[Symptom]) -> list[tuple[Symptom, ...]]:
    """Symptoms that belong together, each group in the order of time."""
    groups: list[list[Symptom]] = []
    open_of: dict[str, list[list[Symptom]]] = {}
    for symptom in sorted(symptoms, key=lambda s: (s.node, s.at, s.cursor)):
        mine = open_of.setdefault(symptom.node, [])
        fitting = [g for g in mine if _belongs(symptom, g)]
        if not fitting:
            if symptom.kind is EventKind.CLEARED:
                continue  # the end of something that began before what was read
            fitting = [[]]
            groups.append(fitting[0])
            mine.append(fitting[0])
        first, *others = fitting
        for other in others:  # it is the link between them
            first += other
            mine.remove(other)
            groups.remove(other)
        first.append(symptom)
        first.sort(key=lambda s: (s.at, s.cursor))
    return [tuple(g) for g in groups]


def primary(symptoms: Sequence[Symptom], priority: Mapping[str, tuple[bool, int]]) -> Symptom:
    """`priority`: fault -> (is it a mere symptom, its place in the taxonomy)."""
    raised = [s for s in symptoms if s.kind is not EventKind.CLEARED] or list(symptoms)
    return min(
        raised, key=lambda s: (s.severity < Severity.MAJOR, *priority.get(s.fault, (False, 1000)), s.at, s.cursor)
    )


def incident(
    symptoms: tuple[Symptom, ...],
    drains: Sequence[Drain],
    actions: Sequence[IncidentAction],
    moved: Sequence[Transition],
    priority: Mapping[str, tuple[bool, int]],
) -> Incident:
    """One group with what was done about it. `drains`, `actions` and `moved` are all of the node's."""
    cause = primary(symptoms, priority)
    codes = sorted({s.fault for s in symptoms})
    drain = next((d for d in drains if _is_about(d, symptoms, codes)), None)
    ended_at = drain.closed_at if drain else _cleared_at(symptoms)
    return Incident(
        id=drain.incident if drain else f"e{symptoms[0].cursor}",
        kind="fault",
        node=cause.node,
        fault=cause.fault,
        component=cause.component,
        severity=max(s.severity for s in symptoms),
        faults=tuple(codes),
        began_at=symptoms[0].at,
        ended_at=ended_at,
        stages=stages(symptoms, drain, actions, moved),
        by_hand=any(drain and drain.opened_at <= t.at and t.actor != "nodetriage" for t in moved),
        symptoms=symptoms,
    )


def stages(
    symptoms: Sequence[Symptom], drain: Drain | None, actions: Sequence[IncidentAction], moved: Sequence[Transition]
) -> dict[str, float | None]:
    """detect: from the node's stamp to our knowing. drain: until Slurm shows it. restart: until its last job is queued
    again. diagnose: from there to Repair. remediate: until it is back at work. The first three keep jobs waiting."""
    found: dict[str, float | None] = dict.fromkeys(("detect", "drain", "diagnose", "remediate", "restart"))
    first = min(symptoms, key=lambda s: s.at)
    found["detect"] = max(0.0, (first.known_at - first.at).total_seconds())
    if drain is None or drain.drained_at is None:
        return found
    drained_at = drain.drained_at
    found["drain"] = max(0.0, (drained_at - first.known_at).total_seconds())
    mine = [d for d in actions if d.incident == drain.incident and d.kind == ActionKind.REQUEUE and d.outcome == "done"]
    if done := [d.finished_at for d in mine if d.finished_at is not None]:
        found["restart"] = (max(done) - drained_at).total_seconds()
    repair = next((t.at for t in moved if t.after is NodeState.REPAIR and t.at >= drained_at), None)
    if repair is not None:
        found["diagnose"] = (repair - drained_at).total_seconds()
        back = next((t.at for t in moved if t.after is NodeState.HEALTHY and t.at >= repair), None)
        found["remediate"] = (back - repair).total_seconds() if back else None
    return found


def on_path_s(incident: Incident) -> float:
    """What a job waits for: detect, drain and restart."""
    return sum(incident.stages.get(name) or 0.0 for name in ("detect", "drain", "restart"))


def _belongs(symptom: Symptom, symptoms: Sequence[Symptom]) -> bool:
    if any(s.key == symptom.key for s in symptoms):
        last = max(s.at for s in symptoms if s.key == symptom.key)
        return symptom.kind is EventKind.CLEARED or symptom.at - last <= GAP
    if symptom.kind is EventKind.CLEARED or symptom.at - max(s.at for s in symptoms) > GAP:
        return False
    return any(_related(symptom, s) for s in symptoms if s.kind is not EventKind.CLEARED)


def _related(one: Symptom, other: Symptom) -> bool:
    if one.names & other.names:
        return True
    classes = [known.class_ if (known := faults().get(s.fault)) else "host" for s in (one, other)]
    if any(c in _WHOLE_NODE for c in classes):
        return True
    return classes[0] != classes[1] and abs(one.at - other.at) <= AT_ONCE


def _is_about(drain: Drain, symptoms: Sequence[Symptom], codes: Sequence[str]) -> bool:
    if not set(drain.causes) & set(codes) or drain.opened_at < symptoms[0].at - BEFORE:
        return False
    ended = _cleared_at(symptoms)
    return ended is None or drain.opened_at <= ended + BEFORE


def _cleared_at(symptoms: Sequence[Symptom]) -> datetime | None:
    """When the last of its findings was gone; None while one is there."""
    last = {s.key: s for s in symptoms}
    if any(s.kind is not EventKind.CLEARED for s in last.values()):
        return None
    return max(s.at for s in last.values())
