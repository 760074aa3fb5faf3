"""How many drains may go on: pure. What is held stays WANTED, with the reason, and is looked at again each turn."""

from dataclasses import replace
from datetime import datetime

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import breaker
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.drains.budget import Budget
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import Action, ActionKind, DrainFact, DrainStatus, FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import DrainLimits, Policy


def release(work: UnitOfWork, policy: Policy) -> None:
    """Lets through what the limits allow, the worst first and of equals the oldest; notes of the rest why not."""
    waiting = [n for n in work.nodes() if n.drain is not None and n.drain.status is DrainStatus.WANTED]
    if not waiting:
        return
    state, budget = work.state, Budget(work, policy.drain_limits)
    out = _out_of(state)
    for node in sorted(waiting, key=_order):
        drain = node.drain
        assert drain is not None
        why = "" if drain.at_once else _why(work, node, drain, budget, policy.drain_limits)
        short = "" if why else _short(state, node, out, policy.drain_limits)
        if short and drain.severity < Severity.CRITICAL and not drain.at_once:
            why = short
        if why:
            if why != drain.queued_reason:
                work.put(replace(node, drain=replace(drain, queued_reason=why)))
            continue
        budget.admit(node, drain, work)
        out.add(node.node)
        _let_through(work, node, drain)
        if short:
            text = f"drained all the same: {short}"
            work.notify(NoticeKind.RESERVATION_SHORT, drain.incident, text, node=node.node, incident=drain.incident)
        breaker.count_action(work, policy.breaker)
    work.set_admitted(budget.admitted)


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
        return "the scheduler lists no node of this name"
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


def ask_for_reason(work: UnitOfWork, node: NodeFacts, drain: DrainFact) -> None:
    """Slurm drains the node for a job that our hook refused: its reason is to become ours. No limit holds that."""
    drain = replace(
        drain, status=DrainStatus.ASKED, theirs=False, asks=drain.asks + 1, asked_at=work.now, queued_reason=""
    )
    work.put(replace(node, drain=drain))
    work.act(drain_action(node.node, drain))


def held(state: FleetState) -> tuple[NodeFacts, ...]:
    """The queue, as it would be released."""
    waiting = (n for n in state.nodes.values() if n.drain is not None and n.drain.status is DrainStatus.WANTED)
    return tuple(sorted(waiting, key=_order))


def _order(node: NodeFacts) -> tuple[int, datetime, str]:
    assert node.drain is not None
    return (-node.drain.severity, node.drain.wanted_at, node.node)


def _out_of(state: FleetState) -> set[str]:
    """Nodes of reservations that nobody can use: by the scheduler's word, or by ours."""
    ours = {n.node for n in state.nodes.values() if n.drain is not None and n.drain.status is not DrainStatus.WANTED}
    return ours.union(*(r.out for r in state.reservations))


def _short(state: FleetState, node: NodeFacts, out: set[str], limits: DrainLimits) -> str:
    """Which running reservation would be left with too few nodes; "" if none. A grave fault goes before it."""
    for r in state.reservations:
        least = limits.least_of(r.name, len(r.nodes))
        if node.node in r.nodes and len(set(r.nodes) - out) - (node.node not in out) < least:
            return f"reservation {r.name} needs {least} of its {len(r.nodes)} nodes"
    return ""
