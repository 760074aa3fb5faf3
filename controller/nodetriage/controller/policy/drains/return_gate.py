"""What must be so before a node comes back to work, by itself or by an operator's `undrain`. Pure.

Its agent speaks, in this boot, and each check that can see a fault of the drain has looked since and found it gone.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.fleet_state import CheckFact, ChecksReported
from nodetriage.controller.policy.liveness import AGENT_SILENT, NODE_LOST
from nodetriage.controller.policy.state import DrainFact, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork

REPORTED_WITHIN = timedelta(seconds=180)  # a report is older only where heartbeats are missing
MOST_CHECKS = 64
_BY_PEOPLE = ("operator", "lemon")  # stand in place of a fault where an operator ordered the drain
_BY_CONTROLLER = (NODE_LOST, AGENT_SILENT)  # faults that the controller sees by itself


def awaits_boot(node: NodeFacts) -> bool:
    """It reboots, or has rebooted, and nothing is known of its new boot: what its old boot found proves nothing."""
    return node.reboot_at is not None


def reported(work: UnitOfWork, event: ChecksReported) -> tuple[str, ...]:
    """Takes a heartbeat's report in. Returns the nodes to evaluate."""
    node = work.node(event.node)
    if node is None or node.boot_id != event.boot_id:
        return ()
    if node.reboot_at is not None and event.at > node.reboot_at and not node.asleep:
        node = replace(node, reboot_at=None)  # the reboot was called off: the boot goes on
    work.put(replace(node, checks=replace(event, checks=event.checks[:MOST_CHECKS])))
    return (event.node,)


def blocked(node: NodeFacts, drain: DrainFact, now: datetime) -> str:
    """Why the node cannot come back yet; "" if nothing is in the way."""
    accepted = {f.fault for f in node.open_findings if f.accepted}
    faults = [fault for fault in drain.causes if fault not in (*_BY_PEOPLE, *accepted)]
    if not faults:
        return ""
    seen_by_checks = [fault for fault in faults if fault not in _BY_CONTROLLER]
    if awaits_boot(node) or node.asleep:
        return "it is rebooting or switched off: its agent must report first"
    if node.silent_since is not None:
        return f"its agent has been silent since {node.silent_since:%Y-%m-%d %H:%M:%S} UTC"
    if node.checks is None or now - node.checks.at > REPORTED_WITHIN:
        return "its agent has not reported its checks in this boot"
    if seen_by_checks and not node.checks.checks:
        return f"no check that can see {', '.join(seen_by_checks)} runs there"
    waiting = _not_ok(node.checks.checks, drain)
    return f"{'; '.join(waiting)}: `nodetriagectl run-checks {node.node}` runs them now" if waiting else ""


def _not_ok(checks: Iterable[CheckFact], drain: DrainFact) -> list[str]:
    """Checks without a fresh ok. One that has findings of other faults must have looked after this one cleared."""
    found = []
    for check in checks:
        since = drain.wanted_at
        if check.outcome == "findings" and drain.clear_since is not None:
            since = drain.clear_since
        if check.outcome not in ("ok", "findings"):
            found.append(f"check {check.check} is {check.outcome}")
        elif check.ran_at is None or check.ran_at <= since:
            found.append(f"check {check.check} has not run since the fault")
    return found
