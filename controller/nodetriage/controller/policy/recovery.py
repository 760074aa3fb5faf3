"""The way back to work, and what others do to a node meanwhile: pure. Only a drain of ours is ever lifted."""

from dataclasses import replace
from datetime import timedelta

from nodetriage.controller.policy import common_mode, drain_limits, maintenance, shared_places
from nodetriage.controller.policy.drains import adoption, repair, return_gate
from nodetriage.controller.policy.drains.elapsed import is_later
from nodetriage.controller.policy.fleet_state import ReservationFact
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.reason import is_hook_error, is_schedulers_own, lost_to_power_saving, parse_reason
from nodetriage.controller.policy.state import (
    Action,
    ActionDone,
    ActionKind,
    ActionOutcome,
    DrainFact,
    DrainStatus,
    NodeFacts,
    NodeState,
    OperatorCommand,
    SchedulerSeen,
)
from nodetriage.controller.policy.unit_of_work import CONTROLLER, UnitOfWork
from nodetriage.controller.scheduler import NodeView, ReservationView
from nodetriage.controller.settings.rules import Mode, Policy

BACK_TO_WORK = {
    NodeState.SUSPECT: (NodeState.HEALTHY,),
    NodeState.DRAINED: (NodeState.REPAIR, NodeState.BURN_IN, NodeState.HEALTHY),
    NodeState.REPAIR: (NodeState.BURN_IN, NodeState.HEALTHY),
    NodeState.BURN_IN: (NodeState.HEALTHY,),
    NodeState.LEMON: (NodeState.REPAIR, NodeState.BURN_IN, NodeState.HEALTHY),
}


def consider(work: UnitOfWork, node: NodeFacts, policy: Policy) -> None:
    """No finding keeps this node out any more: what of its drain?"""
    drain = node.drain
    assert drain is not None
    if node.state is NodeState.LEMON and not drain.by_hand:
        return  # only an operator returns a lemon to service
    if drain.ordered_by and not drain.by_hand:
        return  # an operator ordered it, and an operator lifts it
    if drain.status is DrainStatus.WANTED:
        if shared := common_mode.covering(work.fleet, node):
            _back(work, node, f"part of fleet incident {shared[0].id}", CONTROLLER)
            return
        _back(work, node, "the fault was gone before the drain limits let the drain through", CONTROLLER)
        return
    if drain.status is not DrainStatus.DONE or drain.theirs:
        return
    if _still_there(node, policy) or policy.mode is not Mode.ENFORCE:
        return
    if drain.clear_since is None or drain.clear_since > work.now:  # never, or before the clock stepped back
        drain = replace(drain, clear_since=work.now)
        node = work.put(replace(node, drain=drain))
    assert drain.clear_since is not None
    lasted = work.now - drain.clear_since >= timedelta(seconds=policy.return_hold_s)
    may_return = drain.by_hand or (lasted and _may_return_alone(node, drain, policy))
    if may_return and not return_gate.blocked(node, drain, work.now):
        _undrain(work, node, drain)


def step_aside(work: UnitOfWork, node: NodeFacts) -> None:
    """The node is in maintenance: what is not done yet is not to be done."""
    if node.drain is not None and node.drain.status is DrainStatus.WANTED:
        _back(work, node, f"in maintenance by {node.maintenance.actor if node.maintenance else ''}", CONTROLLER)


def undrain(work: UnitOfWork, event: OperatorCommand, policy: Policy) -> str:
    """An operator says that the node is repaired. Returns why it is not undrained, "" if it will be."""
    node = work.node(event.node)
    if node is None:
        return "the controller never heard of this node; `nodetriagectl nodes` lists those that it knows"
    if node.drain is None:
        return "it is not drained by us"
    drain = node.drain
    if drain.theirs:
        return "its drain is not ours"
    if node.maintenance is not None:
        return f"it is in maintenance by {node.maintenance.actor}: {node.maintenance.reason}"
    if drain.status is not DrainStatus.DONE:
        return f"its drain is {drain.status}"
    if left := _still_there(node, policy):
        return f"still there: {', '.join(left)}"
    if blocked := return_gate.blocked(node, drain, work.now):
        return blocked
    drain = replace(drain, by_hand=True)
    _undrain(work, work.put(replace(node, drain=drain)), drain)
    return ""


def returned(work: UnitOfWork, node: NodeFacts, drain: DrainFact, done: ActionDone) -> None:
    """The undrain was done, or was not ours to do."""
    if done.outcome is ActionOutcome.THEIRS:
        drain = replace(drain, status=DrainStatus.DONE, done_at=work.now, theirs=True)
        work.put(replace(node, drain=drain))
        text = f"{node.node} stays drained: its reason is no longer ours ({done.text})"
        work.notify(NoticeKind.DRAIN_TAKEN_OVER, done.action.id, text, node=node.node, incident=drain.incident)
        return
    _back(work, node, f"free of {', '.join(drain.causes)}", "operator" if drain.by_hand else CONTROLLER)


def empty(work: UnitOfWork, node: NodeFacts, cause: str) -> None:
    """The node is out of work and nothing runs on it that is to end by itself."""
    if node.state is NodeState.SUSPECT:
        work.move(node, NodeState.DRAINED, cause=cause)
    elif node.state is NodeState.BURN_IN:
        work.move(node, NodeState.REPAIR, cause=cause)


def compare(work: UnitOfWork, seen: SchedulerSeen, policy: Policy) -> list[str]:
    """Holds the scheduler's view against ours; returns the nodes that are to be weighed again."""
    again = []
    for view in seen.nodes.values():
        node = work.node(view.name)
        if node is None:
            continue
        shared = seen.places.get(view.name, ())
        asleep = view.power_saving or view.rebooting
        if view.restarting:
            node = work.put(replace(node, reboot_at=seen.read_at))
        if (node.partitions, node.places, node.asleep) != (view.partitions, shared, asleep):
            node = work.put(replace(node, partitions=view.partitions, places=shared, asleep=asleep))
        in_maintenance, node = node.maintenance, maintenance.compare(work, node, view)
        if node.maintenance is not in_maintenance:
            again.append(view.name)
        drain = node.drain
        if view.rebooting:
            continue  # whoever reboots it may give it a reason and a next state of theirs: that is no decision yet
        if drain is None and adoption.adopt(work, node, view, seen.read_at):
            again.append(view.name)
            continue
        # A view that may be older than our own drain says nothing about it.
        if drain is None or drain.status is not DrainStatus.DONE or drain.done_at is None:
            continue
        if is_later(seen.read_at, drain.done_at):
            _compare_drain(work, node, drain, view, policy)
            again.append(view.name)
    if seen.nodes:
        work.set_sizes(_sizes(work, seen))
        reservations = tuple(_reservation(r, seen) for r in seen.reservations if not r.maintenance)
        if reservations != work.fleet.reservations:
            work.set_fleet(reservations=reservations)
    return again


def _sizes(work: UnitOfWork, seen: SchedulerSeen) -> dict[str, int]:
    """How many nodes the fleet, each partition and each shared place has."""
    sizes = {"": len(seen.nodes)}
    for view in seen.nodes.values():
        node = work.node(view.name)
        shared = shared_places.places(node) if node else seen.places.get(view.name, ())
        for area in (*view.partitions, *shared):
            sizes[area] = sizes.get(area, 0) + 1
    return sizes


def _reservation(view: ReservationView, seen: SchedulerSeen) -> ReservationFact:
    out = (name for name in view.nodes if (n := seen.nodes.get(name)) is None or n.draining or n.down)
    return ReservationFact(view.name, view.nodes, tuple(out))


def _compare_drain(work: UnitOfWork, node: NodeFacts, drain: DrainFact, view: NodeView, policy: Policy) -> None:
    if lost_to_power_saving(view) and _stays_out(node, drain, policy):
        _switched_off(work, node, drain)
        return
    if not view.draining:
        if not view.down:
            _resumed_by_hand(work, node, drain, policy)
        return
    ours = parse_reason(view.reason)
    if ours is not None and ours.incident != drain.incident and adoption.is_unknown(work, ours):
        node, drain = adoption.take_over(work, node, drain, ours)
    theirs = (ours is None or ours.incident != drain.incident) and not is_schedulers_own(view)
    if theirs and drain.refused_job and is_hook_error(view.reason) and node.maintenance is None:
        drain_limits.ask_again(work, node, drain)
        return
    if theirs and not drain.theirs:
        node = work.put(replace(node, drain=replace(drain, theirs=True)))
        text = f"{node.node} is now drained by {view.reason_by or 'another'}: {view.reason or 'no reason'}"
        work.notify(NoticeKind.DRAIN_TAKEN_OVER, drain.incident, text, node=node.node, incident=drain.incident)
        work.ask_limits = True
    if not view.busy:
        empty(work, node, "its last job ended")


def _stays_out(node: NodeFacts, drain: DrainFact, policy: Policy) -> bool:
    """Whether the drain would be made today."""
    if drain.theirs or node.maintenance is not None or policy.mode is not Mode.ENFORCE or return_gate.awaits_boot(node):
        return False
    return bool(drain.ordered_by or node.state is NodeState.LEMON or _still_there(node, policy))


def _switched_off(work: UnitOfWork, node: NodeFacts, drain: DrainFact) -> None:
    """That is nobody's word on the fault: the drain goes on."""
    drain_limits.ask_again(work, node, drain, "the scheduler took it away")
    text = f"{node.node} lost its drain or its reason when the scheduler switched it off or on: it is drained again"
    work.notify(NoticeKind.RESUMED_WITH_FAULT, drain.incident, text, node=node.node, incident=drain.incident)


def _resumed_by_hand(work: UnitOfWork, node: NodeFacts, drain: DrainFact, policy: Policy) -> None:
    if return_gate.awaits_boot(node):
        _back(work, node, "resumed by a reboot", "scheduler")
        return
    node = _back(work, node, "resumed in the scheduler", "scheduler")
    left = _still_there(node, policy)
    if not left or node.maintenance is not None:
        return
    # The same removal goes on: that makes no lemon.
    node = work.put(replace(node, removals=node.removals[:-1]))
    if policy.resumed_by_hand == "drain_again":
        node = work.put(repair.resumed(node, work.now))
    then = "it is drained again" if policy.resumed_by_hand == "drain_again" else "left in work, as the policy says"
    text = f"{node.node} was resumed while {', '.join(left)} is still there: {then}"
    work.notify(NoticeKind.RESUMED_WITH_FAULT, drain.incident, text, node=node.node, incident=drain.incident)
    if policy.resumed_by_hand == "accept":
        work.put(replace(node, findings=tuple(replace(f, accepted=True) for f in node.findings)))


def _may_return_alone(node: NodeFacts, drain: DrainFact, policy: Policy) -> bool:
    """Every fault that had a part in the drain must allow it."""
    rules = (policy.rule_for(fault, drain.severity, node.partitions, node.profile) for fault in drain.causes)
    return all(rule.returns == "checks_pass" for rule in rules)


def _still_there(node: NodeFacts, policy: Policy) -> list[str]:
    """The open faults that would drain this node, by themselves and by now or not."""
    rules = (
        (f.fault, policy.rule_for(f.fault, f.severity, node.partitions, node.profile))
        for f in node.open_findings
        if not f.accepted
    )
    return sorted({fault for fault, rule in rules if rule.action.drains})


def _undrain(work: UnitOfWork, node: NodeFacts, drain: DrainFact) -> None:
    work.put(replace(node, drain=replace(drain, status=DrainStatus.RETURNING)))
    work.act(
        Action(
            id=f"undrain-{drain.incident}-{work.stamp}",
            kind=ActionKind.UNDRAIN,
            node=node.node,
            incident=drain.incident,
            fault=drain.fault,
            component=drain.component,
            severity=drain.severity,
        )
    )


def _back(work: UnitOfWork, node: NodeFacts, cause: str, actor: str) -> NodeFacts:
    work.ask_limits = True
    node = work.put(replace(node, drain=None, upkeep=replace(node.upkeep, ticket="")))
    path = BACK_TO_WORK.get(node.state, ())
    return work.move(node, *path, cause=cause, actor=actor) if path else node
