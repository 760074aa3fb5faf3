"""Looks at all that is open on a node and at what was done about it, and closes the gap between them: pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import breaker, common_mode, drain_limits, findings, lemon, recovery, shared_places
from nodetriage.controller.policy.drains import return_gate
from nodetriage.controller.policy.drains.budget import is_witnessed
from nodetriage.controller.policy.drains.elapsed import has_lasted
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainFact,
    DrainStatus,
    FindingFact,
    FleetState,
    NodeFacts,
    NodeState,
)
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Mode, Policy, Response, Rule

Due = tuple[Rule, FindingFact]


def node(work: UnitOfWork, name: str, policy: Policy) -> None:
    facts = work.node(name)
    if facts is None or facts.state is NodeState.RETIRED:
        return
    if return_gate.awaits_boot(facts):
        return
    facts = _shadow(work, facts, policy)
    due = acting(work.fleet, facts, work.now, policy)
    if facts.maintenance is not None:
        recovery.step_aside(work, facts)
    elif due and policy.mode is Mode.ENFORCE:
        rule, finding = max(due, key=lambda d: (d[0].action.rank, d[1].severity, -d[1].event_id))
        causes = tuple(sorted({f.fault for _, f in due}))
        if facts.drain is None:
            open_incident(work, facts, rule, finding, causes, policy)
        else:
            _join_incident(work, facts, facts.drain, rule, finding, causes)
    elif facts.drain is not None:
        recovery.consider(work, facts, policy)


def horizon(policy: Policy) -> timedelta:
    """So long after a finding became known its mere age may still change something. Generous: a tick may come late."""
    holds = [rule.hold_s for rule in policy.rule]
    longest = max(policy.common_mode.shared_hold_s, policy.common_mode.new_version_hold_s, *holds)
    return timedelta(seconds=longest + 3600)


def waits(facts: NodeFacts, now: datetime, longest: timedelta) -> bool:
    """Whether the mere passing of time may change what is to be done about the node: hold times, and the way back."""
    drain = facts.drain
    if drain is not None and (drain.status is not DrainStatus.DONE or drain.clear_since or not facts.open_findings):
        return True
    return any(f.is_open and now - f.known_at <= longest for f in facts.findings)


def acting(fleet: FleetState, facts: NodeFacts, now: datetime, policy: Policy) -> list[Due]:
    """The findings that this node is to be drained for now: neither shadow, nor waiting, nor a fleet incident's."""
    found = [
        (rule, f)
        for rule, f in _due(fleet, facts, now, policy)
        if rule.action.drains
        and f.confidence >= policy.least_confidence(rule)
        and not policy.untrusted(f.check, f.fault)
    ]
    if not found or not fleet.fleet_incidents:
        return found
    covering = common_mode.covering(fleet, facts)
    if not covering:
        return found
    # What the same check says beside the shared fault has the same cause; only what is grave and stands apart counts.
    checks = {check for incident in covering for check in incident.checks}
    return [(rule, f) for rule, f in found if f.severity >= Severity.CRITICAL and f.check not in checks]


def _due(fleet: FleetState, facts: NodeFacts, now: datetime, policy: Policy) -> list[Due]:
    """Open findings that count by now, each with the rule that decides about it."""
    found = []
    settle_s = shared_places.settle_s(fleet, facts, now, policy.common_mode) if facts.open_findings else 0.0
    for finding in facts.open_findings:
        rule = policy.rule_for(finding.fault, finding.severity, facts.partitions, facts.profile)
        hold_s = max(rule.hold_s, settle_s, policy.common_mode.settle_s(finding.fault))
        # What has led to a drain has lasted, whatever the clock shows since.
        is_cause = facts.drain is not None and finding.fault in facts.drain.causes
        lasted = is_cause or has_lasted(finding.known_at, now, hold_s)
        if finding.times >= rule.confirm and lasted and not finding.accepted:
            found.append((rule, finding))
    return found


def _shadow(work: UnitOfWork, facts: NodeFacts, policy: Policy) -> NodeFacts:
    """Records once for each finding what would be done, where that is not done."""
    for rule, finding in _due(work.fleet, facts, work.now, policy):
        if finding.shadowed or (would := _would(rule, finding, facts, policy)) is None:
            continue
        action = Action(
            id=f"shadow-{finding.event_id}",
            kind=ActionKind.SHADOW,
            node=facts.node,
            fault=finding.fault,
            component=finding.component,
            severity=finding.severity,
            text=str(would),
        )
        work.act(action)
        if policy.mode is Mode.RECOMMEND and rule.action.drains:
            text = f"recommended: {would} for {finding.fault} on {finding.component}"
            work.notify(NoticeKind.RECOMMENDED, action.id, text, node=facts.node)
        facts = findings.change(work, facts, replace(finding, shadowed=True))
    return facts


def _would(rule: Rule, finding: FindingFact, facts: NodeFacts, policy: Policy) -> Response | None:
    """What shadow rules, new checks or a milder mode keep from being done; None where nothing is kept."""
    if rule.action is Response.SHADOW:
        return policy.by_severity(finding.severity).action
    if any(r.shadow for r in policy.rule):
        shadowed = policy.would(finding.fault, finding.severity, facts.partitions, facts.profile).action
        if shadowed is not rule.action:
            return shadowed
    doubtful = finding.confidence < policy.least_confidence(rule)
    held_back = policy.mode is not Mode.ENFORCE or doubtful or policy.untrusted(finding.check, finding.fault) != ""
    return rule.action if rule.action.drains and held_back else None


def open_incident(
    work: UnitOfWork, facts: NodeFacts, rule: Rule, finding: FindingFact, causes: tuple[str, ...], policy: Policy
) -> None:
    if facts.state is NodeState.HEALTHY:
        after = NodeState.LEMON if lemon.is_due(work, facts, policy.lemon) else NodeState.SUSPECT
        cause = f"{finding.fault} on {finding.component}"
        if after is NodeState.LEMON:
            cause += f", removal {len(lemon.recent(facts, work.now, policy.lemon)) + 1} in the window"
        facts = work.move(facts, after, cause=cause)
    drain = DrainFact(
        incident=work.new_incident(),
        fault=finding.fault,
        component=finding.component,
        severity=finding.severity,
        requeue=rule.action is Response.DRAIN_AND_REQUEUE,
        status=DrainStatus.WANTED,
        wanted_at=work.now,
        causes=causes,
        witnessed=is_witnessed(finding),
    )
    work.put(replace(facts, drain=drain))
    work.wanting[facts.node] = None
    breaker.count_failing(work, policy.breaker)


def _join_incident(
    work: UnitOfWork, facts: NodeFacts, drain: DrainFact, rule: Rule, finding: FindingFact, causes: tuple[str, ...]
) -> None:
    """A further finding on a node that is being drained: it may only make matters worse."""
    causes = tuple(sorted({*drain.causes, *causes}))
    joined = replace(drain, causes=causes, clear_since=None, witnessed=drain.witnessed or is_witnessed(finding))
    if finding.severity > drain.severity:
        joined = replace(joined, severity=finding.severity, fault=finding.fault, component=finding.component)
    if rule.action is Response.DRAIN_AND_REQUEUE and not drain.requeue:
        joined = replace(joined, requeue=True)
        if drain.status is DrainStatus.DONE:
            # It takes no new job already; asking again brings back the jobs that are still there.
            joined = replace(joined, status=DrainStatus.ASKED, asks=drain.asks + 1)
            work.act(replace(drain_limits.drain_action(facts.node, joined, "-requeue"), severity=finding.severity))
    if drain.status is DrainStatus.RETURNING:
        joined = replace(joined, status=DrainStatus.DONE)  # the undrain, if it is not under way yet, is called off
    if joined != drain:
        work.put(replace(facts, drain=joined))
