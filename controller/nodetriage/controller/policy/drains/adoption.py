"""Drains that carry our reason, and that we do not know: the database was lost or is older than they are. Pure.

Nobody else writes such a reason, so the drain is ours: it counts, its fault is looked at, and an operator can lift it.
"""

from dataclasses import replace
from datetime import datetime

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.drains.elapsed import is_later
from nodetriage.controller.policy.reason import Ours, parse_reason
from nodetriage.controller.policy.state import DrainFact, DrainStatus, NodeFacts, NodeState
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.scheduler import NodeView


def adopt(work: UnitOfWork, node: NodeFacts, view: NodeView, read_at: datetime) -> bool:
    """Takes over the drain of a node that has none by our account. A view older than its state proves nothing."""
    ours = parse_reason(view.reason) if view.draining else None
    if ours is None or not is_later(read_at, node.since) or not is_unknown(work, ours):
        return False
    if node.state not in (NodeState.HEALTHY, NodeState.BURN_IN):
        return False
    cause = f"drained by us as incident {ours.incident}, which is not in the database"
    if node.state is NodeState.HEALTHY:
        node = work.move(node, NodeState.SUSPECT, cause=cause)
    severity = max((f.severity for f in node.open_findings if f.fault == ours.fault), default=Severity.MAJOR)
    drain = DrainFact(
        incident=ours.incident,
        fault=ours.fault,
        component=ours.component,
        severity=severity,
        requeue=False,
        status=DrainStatus.DONE,
        wanted_at=work.now,
        done_at=work.now,
        causes=(ours.fault,),
    )
    node = work.put(replace(node, drain=drain))
    after = {NodeState.SUSPECT: NodeState.DRAINED, NodeState.BURN_IN: NodeState.REPAIR}.get(node.state)
    if after is not None and not view.busy:
        work.move(node, after, cause="no job is left on it")
    return True


def take_over(work: UnitOfWork, node: NodeFacts, drain: DrainFact, ours: Ours) -> tuple[NodeFacts, DrainFact]:
    """Our account has another incident for the drain than Slurm shows: what Slurm shows counts."""
    drain = replace(drain, incident=ours.incident, theirs=False)
    return work.put(replace(node, drain=drain)), drain


def is_unknown(work: UnitOfWork, ours: Ours) -> bool:
    """No node has this incident. A reason that a person copied to a second node is that person's there."""
    return all(n.drain is None or n.drain.incident != ours.incident for n in (*work.waiting(), *work.out()))
