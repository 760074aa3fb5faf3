"""Agents that fall silent. A silent node is unknown, not faulty: silence alone leads to no action. Pure.

The scheduler's own view is asked next (`lost`); what it calls down becomes a finding like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from nodetriage.controller.policy import breaker
from nodetriage.controller.policy.reason import is_schedulers_own, parse_reason
from nodetriage.controller.policy.state import ContactChanged, FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.limits import BreakerLimits

# As which boot the controller's own findings are stored: they are no boot's, and end with none.
CONTROLLER_BOOT = "controller"
CHECK, PART = "scheduler", "node"
NODE_LOST, AGENT_SILENT = "node_lost", "agent_silent"


@dataclass(frozen=True, slots=True)
class Seen:
    """Something that the controller itself saw of a node, to be stored as an event."""

    node: str
    kind: Literal["raised", "cleared"]
    fault: str
    evidence: Mapping[str, str]


def changed(work: UnitOfWork, event: ContactChanged, limits: BreakerLimits) -> None:
    for name in event.lost:
        if (node := work.node(name)) is not None and node.silent_since is None:
            work.put(replace(node, silent_since=work.now))
    for name in event.back:
        if (node := work.node(name)) is not None and node.silent_since is not None:
            work.put(replace(node, silent_since=None))
    if event.lost:
        breaker.count_silent(work, limits)


def next_seq(node: NodeFacts, now_us: int) -> int:
    """The number of the controller's next event about a node: it grows even where the clock steps back."""
    return max([now_us, *(f.seq + 1 for f in node.findings if f.boot_id == CONTROLLER_BOOT)])


def lost(state: FleetState, views: Mapping[str, NodeView]) -> tuple[Seen, ...]:
    """What the scheduler's view says of nodes that it, or we, lost: findings that begin and that end.

    node_lost: Slurm set it DOWN by itself ("Not responding", "Node unexpectedly rebooted"), and its jobs are NODE_FAIL.
    agent_silent: heartbeats are missing, and Slurm hears the node.
    """
    found = []
    for node in state.nodes.values():
        view = views.get(node.node)
        if view is None:
            continue
        has = {f.fault for f in node.open_findings if f.check == CHECK}
        # Once we drain it the reason is ours, and it is as lost as before. A reason of an operator's is their word.
        nobodys = not view.reason or is_schedulers_own(view) or parse_reason(view.reason) is not None
        down = view.down and (nobodys or NODE_LOST in has) and not (view.power_saving or view.rebooting)
        heard = not view.down and "not_responding" not in view.flags
        silent = node.silent_since is not None and heard and not node.asleep
        slurm = "+".join((view.base, *sorted(view.flags)))
        # A node that is down keeps its agent's state: it is unknown until the node is up.
        for fault, is_so, known in ((NODE_LOST, down, True), (AGENT_SILENT, silent, not view.down)):
            if known and is_so != (fault in has):
                kind: Literal["raised", "cleared"] = "raised" if is_so else "cleared"
                found.append(Seen(node.node, kind, fault, {"slurm": slurm, "reason": view.reason[:200]}))
    return tuple(found)
