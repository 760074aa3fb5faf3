"""How many drains may go on: pure. What is held stays WANTED, with the reason, and is looked at again each turn."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import breaker
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import Action, ActionKind, DrainFact, DrainStatus, FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import DrainLimits, Policy

HOUR = timedelta(hours=1)


def release(work: UnitOfWork, policy: Policy) -> None:
    """Lets through what the limits allow, the worst first and of equals the oldest; says of the rest why not."""
    waiting = [n for n in work.nodes() if n.drain is not None and n.drain.status is DrainStatus.WANTED]
    if not waiting:
        return
    state = work.state
    admitted = tuple(at for at in state.admitted if work.now - at < HOUR)
    used = _used(state)
    out = _out_of(state)
    for node in sorted(waiting, key=_order):
        drain = node.drain
        assert drain is not None
        why = breaker.held_why(work.fleet) or _over(state, node, used, admitted, policy.drain_limits)
        short = "" if why else _short(state, node, out, policy.drain_limits)
        if short and drain.severity < Severity.CRITICAL:
            why = short
        if why:
            if why != drain.held_why:
                work.put(replace(node, drain=replace(drain, held_why=why)))
            continue
        admitted = (*admitted, work.now)
        for area in ("", *node.partitions):
            used[area] = used.get(area, 0) + 1
        out.add(node.node)
        drain = replace(drain, status=DrainStatus.ASKED, held_why="", asks=drain.asks + 1)
        work.put(replace(node, drain=drain))
        work.act(drain_action(node.node, drain))
        if short:
            text = f"drained all the same: {short}"
            work.notify(NoticeKind.RESERVATION_SHORT, drain.incident, text, node=node.node, incident=drain.incident)
        breaker.count_action(work, policy.breaker)
    work.set_admitted(admitted)


def drain_action(node: str, drain: DrainFact, suffix: str = "") -> Action:
    """One let through again, because it was called off before it was done, is another deed with another id."""
    again = f"-{drain.asks}" if drain.asks > (2 if suffix else 1) else ""
    return Action(
        id=f"drain-{drain.incident}{suffix}{again}",
        kind=ActionKind.DRAIN,
        node=node,
        incident=drain.incident,
        fault=drain.fault,
        component=drain.component,
        severity=drain.severity,
    )


def held(state: FleetState) -> tuple[NodeFacts, ...]:
    """The queue, as it would be released."""
    waiting = (n for n in state.nodes.values() if n.drain is not None and n.drain.status is DrainStatus.WANTED)
    return tuple(sorted(waiting, key=_order))


def _order(node: NodeFacts) -> tuple[int, datetime, str]:
    assert node.drain is not None
    return (-node.drain.severity, node.drain.wanted_at, node.node)


def _used(state: FleetState) -> dict[str, int]:
    """Nodes that we keep out of work, in each partition and ("") the fleet."""
    used: dict[str, int] = {}
    for node in state.nodes.values():
        if node.drain is None or node.drain.theirs or node.drain.status is DrainStatus.WANTED:
            continue
        for area in ("", *node.partitions):
            used[area] = used.get(area, 0) + 1
    return used


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


def _over(
    state: FleetState, node: NodeFacts, used: dict[str, int], admitted: tuple[datetime, ...], limits: DrainLimits
) -> str:
    """The first limit that this drain would break, in words that do not change while it holds; "" if none."""
    if len(admitted) >= limits.max_drains_per_hour:
        return f"{limits.max_drains_per_hour} drains an hour"
    for area in ("", *node.partitions):
        size = state.sizes.get(area, len(state.nodes))
        nodes = limits.partition_max_nodes if area else limits.max_nodes
        percent = limits.partition_max_percent if area else limits.max_percent
        share = 0 if percent == 0 else max(1, int(size * percent / 100))
        of = f"partition {area}" if area else "the fleet"
        if used.get(area, 0) >= nodes:
            return f"{nodes} nodes of {of} at once"
        if used.get(area, 0) >= share:
            return f"{percent:g} % of {of} ({share} of {size} nodes) at once"
    return ""
