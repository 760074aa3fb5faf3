"""The brain: `step(state, event, now, policy)` is all of it, and pure. What it returns is recorded before it is done.

findings.py keeps what is known of a node, requeues.py decides about jobs, returns.py about the way back, brake.py how
many drains at once; here is what a finding leads to.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller import brake, findings, requeues, returns
from nodetriage.controller.rules import Authority, Policy, Response, Rule
from nodetriage.controller.state import (
    Action,
    ActionDone,
    ActionKind,
    ActionOutcome,
    DrainFact,
    DrainStatus,
    Event,
    FindingFact,
    FleetState,
    NodeEvent,
    NodeFacts,
    NodeState,
    OperatorCommand,
    SchedulerSeen,
    Step,
    Tick,
)
from nodetriage.controller.turn import Turn


def step(state: FleetState, event: Event, now: datetime, policy: Policy) -> Step:
    """What one event leads to. Never raises for what an event says."""
    turn = Turn(state, now)
    match event:
        case NodeEvent():
            turn.set_cursor(event.id)
            name = findings.learn(turn, event, policy)
            if name:
                _weigh(turn, name, policy)
        case SchedulerSeen():
            for name in returns.compare(turn, event, policy):
                _weigh(turn, name, policy)
            turn.ask_brake = True
        case ActionDone():
            _done(turn, event, policy)
        case OperatorCommand():
            returns.command(turn, event, policy)
        case Tick():
            waits = event.thorough or any(rule.hold_s for rule in policy.rule)
            for node in turn.nodes():
                if node.drain is not None or (waits and node.open_findings):
                    _weigh(turn, node.node, policy)
            requeues.tick(turn, policy)
            turn.ask_brake = True
    if turn.ask_brake:
        brake.release(turn, policy.brake)
    return turn.step()


def _weigh(turn: Turn, name: str, policy: Policy) -> None:
    """Looks at all that is open on a node and at what was done about it, and closes the gap between them."""
    node = turn.node(name)
    if node is None:
        return
    node = _shadow(turn, node, policy)
    due = [(rule, f) for rule, f in _due(node, turn.now, policy) if rule.action.drains]
    if due and policy.authority is Authority.ACT:
        rule, finding = max(due, key=lambda d: (d[0].action.rank, d[1].severity, -d[1].event_id))
        causes = tuple(sorted({f.fault for _, f in due}))
        if node.drain is None:
            _open_incident(turn, node, rule, finding, causes)
        else:
            _join_incident(turn, node, node.drain, rule, finding, causes)
    elif node.drain is not None:
        returns.consider(turn, node, policy)


def _due(node: NodeFacts, now: datetime, policy: Policy) -> list[tuple[Rule, FindingFact]]:
    """Open findings that count by now, each with the rule that decides about it."""
    found = []
    for finding in node.open_findings:
        rule = policy.rule_for(finding.fault, finding.severity, node.partitions, node.profile)
        lasted = now - finding.known_at >= timedelta(seconds=rule.hold_s)
        if finding.times >= rule.confirm and lasted and not finding.accepted:
            found.append((rule, finding))
    return found


def _shadow(turn: Turn, node: NodeFacts, policy: Policy) -> NodeFacts:
    """Records once for each finding what would be done, where nothing is."""
    for rule, finding in _due(node, turn.now, policy):
        acts = policy.authority is Authority.ACT
        would = rule.action is Response.SHADOW or (rule.action.drains and not acts)
        if not would or finding.shadowed:
            continue
        by_severity = policy.severity.get(finding.severity.name.lower(), Response.RECORD)
        text = str(by_severity if rule.action is Response.SHADOW else rule.action)
        action = Action(
            id=f"shadow-{finding.event_id}",
            kind=ActionKind.SHADOW,
            node=node.node,
            fault=finding.fault,
            part=finding.part,
            severity=finding.severity,
            text=text,
        )
        turn.act(action)
        if policy.authority is Authority.RECOMMEND and rule.action.drains:
            turn.tell(f"notify-{action.id}", node.node, f"recommended: {text} for {finding.fault} on {finding.part}")
        node = findings.change(turn, node, replace(finding, shadowed=True))
    return node


def _open_incident(turn: Turn, node: NodeFacts, rule: Rule, finding: FindingFact, causes: tuple[str, ...]) -> None:
    if node.state is NodeState.HEALTHY:
        node = turn.move(node, NodeState.SUSPECT, cause=f"{finding.fault} on {finding.part}")
    drain = DrainFact(
        incident=turn.new_incident(),
        fault=finding.fault,
        part=finding.part,
        severity=finding.severity,
        requeue=rule.action is Response.DRAIN_AND_REQUEUE,
        status=DrainStatus.WANTED,
        wanted_at=turn.now,
        causes=causes,
    )
    turn.put(replace(node, drain=drain))
    turn.ask_brake = True


def _join_incident(
    turn: Turn, node: NodeFacts, drain: DrainFact, rule: Rule, finding: FindingFact, causes: tuple[str, ...]
) -> None:
    """A further finding on a node that is being drained: it may only make matters worse."""
    joined = replace(drain, causes=tuple(sorted({*drain.causes, *causes})), clear_since=None)
    if finding.severity > drain.severity:
        joined = replace(joined, severity=finding.severity, fault=finding.fault, part=finding.part)
    if rule.action is Response.DRAIN_AND_REQUEUE and not drain.requeue:
        joined = replace(joined, requeue=True)
        if drain.status is DrainStatus.DONE:
            # It takes no new job already; asking again brings back the jobs that are still there.
            joined = replace(joined, status=DrainStatus.ASKED)
            action = brake.drain_action(node.node, drain, "-requeue")
            turn.act(replace(action, severity=finding.severity))
    if drain.status is DrainStatus.RETURNING:
        joined = replace(joined, status=DrainStatus.DONE)  # the undrain, if it is not under way yet, is called off
    if joined != drain:
        turn.put(replace(node, drain=joined))


def _done(turn: Turn, done: ActionDone, policy: Policy) -> None:
    node = turn.node(done.action.node)
    if node is None or node.drain is None or node.drain.incident != done.action.incident:
        return
    match done.action.kind:
        case ActionKind.DRAIN:
            _drained(turn, node, node.drain, done, policy)
        case ActionKind.UNDRAIN:
            returns.returned(turn, node, node.drain, done)
        case ActionKind.REQUEUE:
            if done.outcome is ActionOutcome.REFUSED:
                text = f"job {done.action.job} was not requeued: {done.text}"
                turn.tell(f"notify-{done.action.id}", node.node, text, node.drain.incident)
    _weigh(turn, node.node, policy)


def _drained(turn: Turn, node: NodeFacts, drain: DrainFact, done: ActionDone, policy: Policy) -> None:
    theirs = done.outcome is ActionOutcome.THEIRS
    drain = replace(drain, status=DrainStatus.DONE, done_at=turn.now, theirs=theirs)
    node = turn.put(replace(node, drain=drain))
    if theirs:
        turn.ask_brake = True
    if drain.requeue:
        requeues.decide(turn, node, drain, done.jobs, policy)
    if drain.requeue or not done.jobs:
        returns.empty(turn, node, "already drained by another" if theirs else f"drained for {drain.fault}")
