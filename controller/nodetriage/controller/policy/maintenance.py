"""Planned stops: while someone works on a node, what is found there is recorded and nothing is done about it. Pure."""

from dataclasses import replace

from nodetriage.controller.policy.fleet_state import MaintenanceFact
from nodetriage.controller.policy.state import NodeFacts, OperatorCommand
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.scheduler import NodeView


def command(work: UnitOfWork, event: OperatorCommand) -> str:
    """Begins or ends it by an operator's word; returns why not, "" if it was done."""
    node = work.node(event.node)
    if node is None:
        return "no agent of this name was ever heard"
    begins, now = event.verb == "maintenance_on", node.maintenance
    if begins and now is not None and now.source == "operator":
        return f"it is in maintenance already, by {now.actor}: {now.reason}"
    if not begins and (now is None or now.source == "scheduler"):
        return "it is in the scheduler's maintenance, which ends there" if now else "it is not in maintenance"
    fact = MaintenanceFact(work.now, event.actor, event.reason, "operator") if begins else None
    work.put(replace(node, maintenance=fact))
    work.ask_brake = True
    return ""


def compare(work: UnitOfWork, node: NodeFacts, view: NodeView) -> NodeFacts:
    """Takes over a running MAINT reservation, which shows as a flag of the node; an operator's own goes before it."""
    now = node.maintenance
    if view.in_maintenance and now is None:
        fact = MaintenanceFact(work.now, "scheduler", "a MAINT reservation", "scheduler")
        return work.put(replace(node, maintenance=fact))
    if not view.in_maintenance and now is not None and now.source == "scheduler":
        return work.put(replace(node, maintenance=None))
    return node
