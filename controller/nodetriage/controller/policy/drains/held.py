"""Tells operators of each critical finding that drains nothing yet: at once where a limit holds it, and again. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import common_mode, shared_places
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import (
    DrainFact,
    DrainStatus,
    FindingFact,
    NodeFacts,
    NodeState,
)
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Mode, Policy, Rule

# A finding that merely waits (for other nodes, for Slurm) is reported after this time; a minute is promised.
TOLD_AFTER = timedelta(seconds=50)


class _Held(NamedTuple):
    fault: str
    component: str
    why: str
    then: str  # what an operator may do
    incident: str = ""


def tell(work: UnitOfWork, policy: Policy, names: Iterable[str] | None = None) -> None:
    """Looks at these nodes, or at all; tells once of each critical finding, and again every `held_notice_s`."""
    again = timedelta(seconds=policy.drain_limits.held_notice_s)
    nodes = work.busy() if names is None else [n for name in dict.fromkeys(names) if (n := work.node(name)) is not None]
    for node in nodes:
        if not node.findings and node.drain is None and node.upkeep.held_told_at is None:
            continue
        node = _joined(work, node)
        before = node.upkeep.held_told_at
        held = _held(work, node, policy)
        if held is None:
            if before is not None:
                work.put(replace(node, upkeep=replace(node.upkeep, held_told_at=None)))
        elif before is None or work.now - before >= again:
            work.put(replace(node, upkeep=replace(node.upkeep, held_told_at=work.now)))
            text = f"{node.node} is not drained for {held.fault} on {held.component}: {held.why}. {held.then}"
            about = f"{node.node}-{work.stamp}"
            work.notify(NoticeKind.DRAIN_HELD, about, text, node=node.node, incident=held.incident)


def _joined(work: UnitOfWork, node: NodeFacts) -> NodeFacts:
    """Tells once of each node that is part of a fleet incident and still in work."""
    if not work.fleet.fleet_incidents or not node.findings or node.maintenance is not None:
        return node
    if repair.is_out(node) or not (shared := common_mode.covering(work.fleet, node)):
        return node
    one = shared[0]
    if node.upkeep.joined == one.id:
        return node
    then = f"Repair what the nodes share, or `nodetriagectl incident close {one.id} --reason WHY`"
    text = f"{node.node} is part of fleet incident {one.id} and is not drained for {one.fault}. {then}."
    work.notify(NoticeKind.FLEET_INCIDENT_JOINED, f"{one.id}-{node.node}", text, node=node.node, incident=one.id)
    return work.put(replace(node, upkeep=replace(node.upkeep, joined=one.id, held_told_at=None)))


def _held(work: UnitOfWork, node: NodeFacts, policy: Policy) -> _Held | None:
    """None where nothing critical waits: drained, in maintenance, accepted, or left in work by the policy."""
    if policy.mode is not Mode.ENFORCE or node.maintenance is not None or node.state is NodeState.RETIRED:
        return None
    drain = node.drain
    if drain is not None and drain.severity >= Severity.CRITICAL:
        return _waiting(work, node, drain)
    if drain is not None and drain.status is not DrainStatus.WANTED:
        return None
    if work.fleet.fleet_incidents and common_mode.covering(work.fleet, node):
        return None  # `_joined` reports it, and the incident itself is reported again and again
    for finding in node.open_findings:
        if finding.severity >= Severity.CRITICAL and work.now - finding.known_at >= TOLD_AFTER:
            rule = policy.rule_for(finding.fault, finding.severity, node.partitions, node.profile)
            left = finding.accepted or policy.untrusted(finding.check, finding.fault) != ""
            if rule.action.drains and not left:
                return _settling(work, node, finding, rule, policy)
    return None


def _waiting(work: UnitOfWork, node: NodeFacts, drain: DrainFact) -> _Held | None:
    """A drain that is wanted and held, or asked for and not done."""
    what = (drain.fault, drain.component)
    by_hand = f"`nodetriagectl drain --now {node.node} --reason WHY` drains it all the same."
    if drain.status is DrainStatus.WANTED and drain.queued_reason:
        if work.fleet.breaker.is_open:
            by_hand = f"Close the breaker when its cause is known; {by_hand}"
        elif not repair.counts(node):
            by_hand = f"Add it to the scheduler, or `nodetriagectl retire {node.node} --reason WHY`."
        return _Held(*what, drain.queued_reason, by_hand, drain.incident)
    late = drain.asked_at is not None and work.now - drain.asked_at >= TOLD_AFTER
    if drain.status is DrainStatus.ASKED and drain.done_at is None and late:
        return _Held(*what, "the scheduler has not done it yet", "See `nodetriagectl actions --open`.", drain.incident)
    return None


def _settling(work: UnitOfWork, node: NodeFacts, finding: FindingFact, rule: Rule, policy: Policy) -> _Held:
    """No drain is wanted yet, although the policy drains for the fault."""
    what = (finding.fault, finding.component)
    if finding.confidence < (least := policy.least_confidence(rule)):
        why = f"its confidence is {finding.confidence.name.lower()}, and the policy acts from {least.name.lower()} on"
        by_hand = f"Look at the node; `nodetriagectl drain --now {node.node} --reason WHY` drains it all the same."
        return _Held(*what, why, by_hand)
    if finding.times < rule.confirm:
        return _Held(*what, f"its rule waits for {rule.confirm} reports, and {finding.times} came", "Look at the node.")
    settle_s = shared_places.settle_s(work.fleet, node, work.now, policy.common_mode)
    cause = "the agent's version is new" if settle_s else "the policy waits for other nodes or for its hold time"
    return _Held(*what, cause, "It is drained when the time is over and the fault is still there.")
