"""How many drains may go on: pure. What is held stays WANTED, with the reason, and is looked at again each turn."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.rules import Limits
from nodetriage.controller.state import Action, ActionKind, DrainFact, DrainStatus, FleetState, NodeFacts
from nodetriage.controller.turn import Turn

HOUR = timedelta(hours=1)


def release(turn: Turn, limits: Limits) -> None:
    """Lets through what the limits allow, the worst first and of equals the oldest; says of the rest why not."""
    waiting = [n for n in turn.nodes() if n.drain is not None and n.drain.status is DrainStatus.WANTED]
    if not waiting:
        return
    admitted = tuple(at for at in turn.state.admitted if turn.now - at < HOUR)
    used = _used(turn.state)
    for node in sorted(waiting, key=_order):
        assert node.drain is not None
        why = _over(turn.state, node, used, admitted, limits)
        if why:
            if why != node.drain.held_why:
                turn.put(replace(node, drain=replace(node.drain, held_why=why)))
            continue
        admitted = (*admitted, turn.now)
        for area in ("", *node.partitions):
            used[area] = used.get(area, 0) + 1
        turn.put(replace(node, drain=replace(node.drain, status=DrainStatus.ASKED, held_why="")))
        turn.act(drain_action(node.node, node.drain))
    turn.set_admitted(admitted)


def drain_action(node: str, drain: DrainFact, suffix: str = "") -> Action:
    return Action(
        id=f"drain-{drain.incident}{suffix}",
        kind=ActionKind.DRAIN,
        node=node,
        incident=drain.incident,
        fault=drain.fault,
        part=drain.part,
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


def _over(
    state: FleetState, node: NodeFacts, used: dict[str, int], admitted: tuple[datetime, ...], limits: Limits
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
