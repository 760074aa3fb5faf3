"""What an operator orders for one node: drain, release, retire, ticket, accept. Pure.

Each returns why it is refused, and what to do; "" if it is done.
"""

from dataclasses import replace

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import lemon as lemons
from nodetriage.controller.policy import recovery
from nodetriage.controller.policy.orders.command import OperatorCommand
from nodetriage.controller.policy.state import DrainFact, DrainStatus, FindingFact, NodeFacts, NodeState
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Mode, Policy

UNKNOWN = "the controller never heard of this node; `nodetriagectl nodes` lists those that it knows"
NO_REASON = "give a reason with --reason: others will read it"
MOST_TEXT = 500
BY_OPERATOR = "operator"  # stands in place of the fault where no finding is the reason
TO_RETIRED = {
    NodeState.HEALTHY: (NodeState.SUSPECT, NodeState.DRAINED, NodeState.REPAIR, NodeState.RETIRED),
    NodeState.SUSPECT: (NodeState.DRAINED, NodeState.REPAIR, NodeState.RETIRED),
    NodeState.DRAINED: (NodeState.REPAIR, NodeState.RETIRED),
    NodeState.REPAIR: (NodeState.RETIRED,),
    NodeState.LEMON: (NodeState.REPAIR, NodeState.RETIRED),
    NodeState.BURN_IN: (NodeState.REPAIR, NodeState.RETIRED),
}
BACK = {
    NodeState.RETIRED: (NodeState.BURN_IN, NodeState.HEALTHY),
    NodeState.LEMON: (NodeState.REPAIR, NodeState.BURN_IN, NodeState.HEALTHY),
    NodeState.REPAIR: (NodeState.BURN_IN, NodeState.HEALTHY),
    NodeState.BURN_IN: (NodeState.HEALTHY,),
}


def drain(work: UnitOfWork, event: OperatorCommand, policy: Policy) -> str:
    """Drains the node for an operator; a drain that waits already goes on as the operator's."""
    node = work.node(event.node)
    if node is None:
        return UNKNOWN
    if not event.reason.strip():
        return NO_REASON
    if why := _no_drain(node, event, policy):
        return why
    worst = max(node.open_findings, key=lambda f: (f.severity, -f.event_id), default=None)
    ordered = node.drain or _new_drain(work, worst)
    ordered = replace(ordered, ordered_by=event.actor, at_once=ordered.at_once or event.at_once)
    node = replace(node, drain=replace(ordered, queued_reason=ordered.queued_reason or "an operator ordered it"))
    if node.state is NodeState.HEALTHY:
        work.move(node, NodeState.SUSPECT, cause=event.reason[:MOST_TEXT], actor=event.actor)
    else:
        work.put(node)
    work.ask_limits = True
    return ""


def _no_drain(node: NodeFacts, event: OperatorCommand, policy: Policy) -> str:
    """Why the order to drain is refused; "" if it is not."""
    if policy.mode is not Mode.ENFORCE:
        return f'the mode is {policy.mode}: set mode = "enforce" in policy.toml, or drain the node in Slurm'
    if node.state is NodeState.RETIRED:
        return f"it is retired; `nodetriagectl release {node.node} --reason WHY` brings it back first"
    if node.upkeep.unlisted:
        return "the scheduler lists no node of this name"
    if node.maintenance is not None:
        by = f"{node.maintenance.actor}: {node.maintenance.reason}"
        return f"it is in maintenance by {by}; end that first: `nodetriagectl maintenance {node.node} off`"
    if node.drain is None or node.drain.status is DrainStatus.WANTED:
        return "" if node.drain is None or event.at_once else "its drain waits already; --now lets it through at once"
    return "another drained it" if node.drain.theirs else f"its drain is {node.drain.status} already"


def _new_drain(work: UnitOfWork, worst: FindingFact | None) -> DrainFact:
    return DrainFact(
        incident=work.new_incident(),
        fault=worst.fault if worst else BY_OPERATOR,
        component=worst.component if worst else "node",
        severity=worst.severity if worst else Severity.MAJOR,
        requeue=worst is not None and worst.severity >= Severity.CRITICAL,
        status=DrainStatus.WANTED,
        wanted_at=work.now,
        causes=(worst.fault if worst else BY_OPERATOR,),
    )


def release(work: UnitOfWork, event: OperatorCommand, policy: Policy) -> str:
    """Brings a node back from Lemon, Repair, BurnIn or Retired, and forgets its removals and its ticket."""
    node = work.node(event.node)
    if node is None:
        return UNKNOWN
    if not event.reason.strip():
        return NO_REASON
    if node.drain is not None:
        if why := recovery.undrain(work, replace(event, verb="undrain"), policy):
            return why
    elif node.state in BACK:
        node = work.move(node, *BACK[node.state], cause=event.reason[:MOST_TEXT], actor=event.actor)
    else:
        return f"it is {node.state}: only Lemon, Repair, BurnIn and Retired are released"
    node = work.node(event.node) or node
    work.put(replace(node, removals=(), upkeep=replace(node.upkeep, ticket="", resumed=())))
    return ""


def lemon(work: UnitOfWork, event: OperatorCommand, policy: Policy) -> str:
    """Takes a lemon out when its jobs have ended, or lifts the word; nothing but an operator brings it back."""
    node = work.node(event.node)
    if node is None:
        return UNKNOWN
    if event.verb == "lemon_lift":
        return _lift(work, node, event, policy)
    if not event.reason.strip():
        return NO_REASON
    if node.state is NodeState.LEMON:
        return "it is a lemon already"
    if node.drain is not None and not node.drain.theirs and node.drain.done_at is not None:
        work.put(replace(node, drain=replace(node.drain, ordered_by=event.actor)))  # it stays out
        return ""
    if why := _no_drain(node, replace(event, at_once=True), policy):
        return why
    if node.state is not NodeState.HEALTHY:
        return f"it is {node.state}: only a Healthy or a drained node becomes a lemon"
    lemons.make(work, node, event.actor, event.reason)
    return ""


def _lift(work: UnitOfWork, node: NodeFacts, event: OperatorCommand, policy: Policy) -> str:
    """The node is no lemon, whatever its history shows: for a node in work too, which a verdict may concern."""
    if node.state is NodeState.LEMON:
        if why := release(work, event, policy):
            return why
    elif node.upkeep.lemon_told_at is None:
        return f"it is no lemon: it is {node.state}, and no verdict names it"
    node = work.node(node.node) or node
    work.put(replace(node, upkeep=replace(node.upkeep, lemon_lifted_at=work.now, lemon_told_at=None)))
    return ""


def retire(work: UnitOfWork, event: OperatorCommand) -> str:
    """Takes the node out of the fleet: it is neither drained nor counted, and what it reports is recorded."""
    node = work.node(event.node)
    if node is None:
        return UNKNOWN
    if not event.reason.strip():
        return NO_REASON
    if node.state is NodeState.RETIRED:
        return "it is retired already"
    drained = node.drain is not None and node.drain.done_at is not None and not node.drain.theirs
    node = replace(node, drain=node.drain if drained else None)
    work.move(node, *TO_RETIRED[node.state], cause=event.reason[:MOST_TEXT], actor=event.actor)
    work.ask_limits = True
    return ""


def ticket(work: UnitOfWork, event: OperatorCommand) -> str:
    """Notes the ticket of the node's repair, which moves a drained node to the repair pool; no text removes it."""
    node = work.node(event.node)
    if node is None:
        return UNKNOWN
    text = " ".join(event.reason.split())[:MOST_TEXT]
    if not text and not node.upkeep.ticket:
        return "it has no ticket; give its text"
    work.put(replace(node, upkeep=replace(node.upkeep, ticket=text)))
    work.ask_limits = True
    return ""


def accept(work: UnitOfWork, event: OperatorCommand) -> str:
    """The node works in spite of the fault, until that changes or happens anew."""
    node = work.node(event.node)
    if node is None:
        return UNKNOWN
    if not event.reason.strip():
        return NO_REASON
    open_now = sorted({f.fault for f in node.open_findings})
    if event.fault not in open_now:
        return f"it has no open finding of {event.fault} ({', '.join(open_now) or 'it has none at all'})"
    accepted = (replace(f, accepted=f.accepted or (f.is_open and f.fault == event.fault)) for f in node.findings)
    work.put(replace(node, findings=tuple(accepted)))
    work.ask_limits = True
    return ""
