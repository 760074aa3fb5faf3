"""How many drains may go on: pure. What is held stays WANTED, with the reason, and is looked at again each turn."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import breaker
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.drains.budget import Budget
from nodetriage.controller.policy.facts.nodes import nodes_of
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import Action, ActionKind, DrainFact, DrainStatus, FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import DrainLimits, Policy

UNLISTED = "the scheduler lists no node of this name"


def release(work: UnitOfWork, policy: Policy, only: Iterable[str] | None = None) -> None:
    """Lets through what the limits allow, the worst first and of equals the oldest; notes of the rest why not.

    Where nothing made room since the others were looked at, `only` these nodes are looked at first, and the others
    not at all while the limits hold these too.
    """
    waiting = work.waiting()
    if not waiting:
        return
    budget, out = Budget(work, policy.drain_limits), _out_of(work)
    if only is not None:
        first = [node for name in only if (node := work.node(name)) and _waits(node)]
        if all(_held(work, node, budget, out, policy) for node in first):
            waiting = tuple(first)
    for node in sorted(waiting, key=_order):
        drain = node.drain
        assert drain is not None
        why = _held(work, node, budget, out, policy)
        if why:
            if why != drain.queued_reason:
                work.put(replace(node, drain=replace(drain, queued_reason=why)))
            continue
        budget.admit(node, drain, work)
        _let_through(work, node, drain)
        if short := _short(work.fleet, node, out, policy.drain_limits):
            text = f"drained all the same: {short}"
            work.notify(NoticeKind.RESERVATION_SHORT, drain.incident, text, node=node.node, incident=drain.incident)
        out.add(node.node)
        breaker.count_action(work, policy.breaker)
    work.set_admitted(budget.admitted)


def _held(work: UnitOfWork, node: NodeFacts, budget: Budget, out: set[str], policy: Policy) -> str:
    """Which limit holds the drain; "" where it goes through."""
    drain, limits = node.drain, policy.drain_limits
    assert drain is not None
    if drain.at_once:
        return UNLISTED if node.upkeep.unlisted else ""
    if why := _why(work, node, drain, budget, limits):
        return why
    return _short(work.fleet, node, out, limits) if drain.severity < Severity.CRITICAL else ""


def _let_through(work: UnitOfWork, node: NodeFacts, drain: DrainFact) -> None:
    drain = replace(drain, status=DrainStatus.ASKED, queued_reason="", asks=drain.asks + 1, asked_at=work.now)
    work.put(replace(node, drain=drain))
    work.act(drain_action(node.node, drain))


def _why(work: UnitOfWork, node: NodeFacts, drain: DrainFact, budget: Budget, limits: DrainLimits) -> str:
    """Why the drain does not go through now; "" if it does."""
    return breaker.queued_reason(work.fleet) or _own_why(work, node, limits) or budget.over(node, drain)


def _own_why(work: UnitOfWork, node: NodeFacts, limits: DrainLimits) -> str:
    """Why this one node is not drained now, whatever the fleet's budget is; "" if nothing is in the way."""
    if node.upkeep.unlisted:
        return UNLISTED
    if until := repair.backoff_until(node, work.now, limits):
        times = len(node.upkeep.resumed)
        return f"another tool resumed it {times} times: it is not drained again before {until:%H:%M:%S} UTC"
    return ""


def drain_action(node: str, drain: DrainFact, suffix: str = "") -> Action:
    """A drain that is allowed again after it was cancelled is another action with another id."""
    again = f"-{drain.asks}" if drain.asks > (2 if suffix else 1) else ""
    return Action(
        id=f"drain-{drain.incident}{suffix}{again}",
        kind=ActionKind.DRAIN,
        node=node,
        incident=drain.incident,
        fault=drain.fault,
        component=drain.component,
        severity=drain.severity,
        job=drain.refused_job,
    )


def ask_again(work: UnitOfWork, node: NodeFacts, drain: DrainFact, text: str = "") -> None:
    """The node counts as drained already, so no limit holds this.

    Slurm drains it for a job that our hook refused, and its reason is to become ours; or Slurm ended our drain itself.
    """
    drain = replace(
        drain, status=DrainStatus.ASKED, theirs=False, asks=drain.asks + 1, asked_at=work.now, queued_reason=""
    )
    work.put(replace(node, drain=drain))
    work.act(replace(drain_action(node.node, drain), text=text))


def held(state: FleetState) -> tuple[NodeFacts, ...]:
    """The queue, as it would be released."""
    waiting = (state.nodes[name] for name in nodes_of(state.nodes).waiting)
    return tuple(sorted(waiting, key=_order))


def _order(node: NodeFacts) -> tuple[int, datetime, str]:
    assert node.drain is not None
    return (-node.drain.severity, node.drain.wanted_at, node.node)


def _waits(node: NodeFacts) -> bool:
    return node.drain is not None and node.drain.status is DrainStatus.WANTED


def _out_of(work: UnitOfWork) -> set[str]:
    """Nodes of reservations that nobody can use: by the scheduler's word, or by ours."""
    return {n.node for n in work.out()}.union(*(r.out for r in work.fleet.reservations))


def _short(state: FleetState, node: NodeFacts, out: set[str], limits: DrainLimits) -> str:
    """Which running reservation would be left with too few nodes; "" if none. A grave fault goes before it."""
    for r in state.reservations:
        least = limits.least_of(r.name, len(r.nodes))
        if node.node in r.nodes and len(set(r.nodes) - out) - (node.node not in out) < least:
            return f"reservation {r.name} needs {least} of its {len(r.nodes)} nodes"
    return ""
