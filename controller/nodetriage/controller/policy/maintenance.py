"""Planned stops: while someone works on a node, what is found there is recorded and nothing is done about it. Pure.

Each has an end, so that none that is forgotten leaves a node unguarded.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.fleet_state import MaintenanceFact
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import NodeFacts, OperatorCommand
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.limits import Maintenance


def command(work: UnitOfWork, event: OperatorCommand, rules: Maintenance) -> str:
    """Begins, prolongs or ends it by an operator's word; returns why not, "" if it was done."""
    node = work.node(event.node)
    if node is None:
        return "the controller never heard of this node; `nodetriagectl nodes` lists those that it knows"
    why, fact = _end(node) if event.verb == "maintenance_off" else _begin(work, node, event, rules)
    if not why:
        work.put(replace(node, maintenance=fact))
        work.ask_limits = True
    return why


def _begin(
    work: UnitOfWork, node: NodeFacts, event: OperatorCommand, rules: Maintenance
) -> tuple[str, MaintenanceFact | None]:
    now = node.maintenance
    if now is not None and now.source == "operator" and event.until is None:
        return f"it is in maintenance already, by {now.actor}: {now.reason}; --until TIME changes its end", None
    until = event.until or work.now + timedelta(seconds=rules.default_s)
    if why := _wrong_end(work.now, until, rules):
        return why, None
    if now is not None and now.source == "operator":
        return "", replace(now, until=until)
    return "", MaintenanceFact(work.now, event.actor, event.reason, "operator", until)


def _end(node: NodeFacts) -> tuple[str, MaintenanceFact | None]:
    if node.maintenance is None:
        return "it is not in maintenance", None
    if node.maintenance.source == "scheduler":
        return "it is in the scheduler's maintenance, which ends there", None
    return "", None


def _wrong_end(now: datetime, until: datetime, rules: Maintenance) -> str:
    if until <= now:
        return "give an end that lies ahead with --until: 4h, 2d, or a UTC time"
    if until - now > timedelta(seconds=rules.longest_s):
        return f"its end lies more than {rules.longest_s / 86400:g} days ahead ([maintenance] longest_s)"
    return ""


def tick(work: UnitOfWork) -> tuple[str, ...]:
    """Ends maintenance whose time is over; returns its nodes, which are looked at again."""
    over = [n for n in work.busy() if n.maintenance and n.maintenance.until and work.now >= n.maintenance.until]
    for node in over:
        assert node.maintenance is not None
        by = f"{node.maintenance.actor}: {node.maintenance.reason}"
        work.put(replace(node, maintenance=None))
        text = f"maintenance of {node.node} by {by} is over: its findings count again"
        work.notify(NoticeKind.MAINTENANCE_ENDED, f"{node.node}-{work.stamp}", text, node=node.node)
    return tuple(n.node for n in over)


def compare(work: UnitOfWork, node: NodeFacts, view: NodeView) -> NodeFacts:
    """Takes over a running MAINT reservation, which shows as a flag of the node; an operator's own goes before it."""
    now = node.maintenance
    if view.in_maintenance and now is None:
        fact = MaintenanceFact(work.now, "scheduler", "a MAINT reservation", "scheduler")
        return work.put(replace(node, maintenance=fact))
    if not view.in_maintenance and now is not None and now.source == "scheduler":
        return work.put(replace(node, maintenance=None))
    return node
