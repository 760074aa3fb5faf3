"""A node that fails again and again is a lemon: out of work until a person says otherwise. Pure."""

from datetime import datetime, timedelta

from nodetriage.controller.policy.breaker import fleet_size
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import NodeFacts, NodeState
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import Lemons


def recent(node: NodeFacts, now: datetime, rules: Lemons) -> tuple[datetime, ...]:
    """When we removed it within the window. Operators' drains and maintenance are none of these."""
    window = timedelta(seconds=rules.window_s)
    return tuple(at for at in node.removals if now - at < window)


def is_due(work: UnitOfWork, node: NodeFacts, rules: Lemons) -> bool:
    """Whether the next removal makes the node a lemon; a notice where the fleet has its most lemons already."""
    removals = len(recent(node, work.now, rules)) + 1
    if rules.max_removals == 0 or removals < rules.max_removals:
        return False
    lemons = sum(n.state is NodeState.LEMON for n in work.nodes())
    if lemons < rules.most(fleet_size(work.fleet)):
        return True
    text = f"{node.node} was removed {removals} times, but {lemons} nodes are lemons already: treated as before"
    work.notify(NoticeKind.LEMON_LIMIT, f"{node.node}-{work.stamp}", text, node=node.node)
    return False
