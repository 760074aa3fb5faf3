"""Nodes in repair, which no limit on new drains counts, and nodes that the scheduler does not have. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.state import DrainStatus, NodeFacts, NodeState, SchedulerSeen
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import DrainLimits

RESUMED_WITHIN = timedelta(days=1)


def counts(node: NodeFacts) -> bool:
    """Whether the node is a part of the fleet: neither retired nor unknown to the scheduler."""
    return node.state is not NodeState.RETIRED and not node.upkeep.unlisted


def is_out(node: NodeFacts) -> bool:
    """We drained it, or are about to."""
    drain = node.drain
    return drain is not None and not drain.theirs and drain.status is not DrainStatus.WANTED and counts(node)


def due(node: NodeFacts, now: datetime, limits: DrainLimits) -> bool:
    """It is drained, and handed over: it has a ticket, or has been out for `repair_after_s`."""
    if not is_out(node) or node.drain is None or node.drain.done_at is None:
        return False
    return bool(node.upkeep.ticket) or now - node.drain.done_at >= timedelta(seconds=limits.repair_after_s)


def pool(nodes: Iterable[NodeFacts], now: datetime, limits: DrainLimits, fleet: int) -> tuple[NodeFacts, ...]:
    """The nodes in repair that the pool holds, the longest in repair first."""
    waiting = sorted((n for n in nodes if due(n, now, limits)), key=_since)
    return tuple(waiting[: limits.repair_pool(fleet)])


def compare(work: UnitOfWork, seen: SchedulerSeen) -> None:
    """Marks the nodes that the scheduler does not list. A FUTURE node is a line in its configuration and no node."""
    if not seen.nodes:
        return
    for node in work.nodes():
        view = seen.nodes.get(node.node)
        unlisted = view is None or not view.exists
        if unlisted != node.upkeep.unlisted:
            work.put(replace(node, upkeep=replace(node.upkeep, unlisted=unlisted)))
            work.ask_limits = True


def resumed(node: NodeFacts, now: datetime) -> NodeFacts:
    """The node, after another tool resumed it while its fault is still there."""
    recent = tuple(at for at in node.upkeep.resumed if now - at < RESUMED_WITHIN)
    return replace(node, upkeep=replace(node.upkeep, resumed=(*recent, now)[-16:]))


def backoff_until(node: NodeFacts, now: datetime, limits: DrainLimits) -> datetime | None:
    """Before this time the node is not drained again, because another tool resumes it each time; None: at once."""
    recent = [at for at in node.upkeep.resumed if now - at < RESUMED_WITHIN]
    if len(recent) < 2:
        return None
    wait_s = min(limits.resumed_backoff_s * 2 ** (len(recent) - 2), RESUMED_WITHIN.total_seconds())
    until = recent[-1] + timedelta(seconds=wait_s)
    return until if now < until else None


def _since(node: NodeFacts) -> tuple[datetime, str]:
    assert node.drain is not None
    assert node.drain.done_at is not None
    return (node.drain.done_at, node.node)
