"""Turns heartbeats of drained and rebooting nodes into reports for the policy; those of others are left out."""

import functools
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from nodetriage.checks.model.faults import faults
from nodetriage.controller.policy.drains.return_gate import MOST_CHECKS
from nodetriage.controller.policy.facts.nodes import nodes_of
from nodetriage.controller.policy.fleet_state import CheckFact, ChecksReported
from nodetriage.controller.policy.state import FleetState, NodeFacts
from nodetriage.controller.store.fleet import NEVER_RAN
from nodetriage.controller.store.mappers import Seen
from nodetriage.controller.store.state_store import from_us
from nodetriage.v1 import health_pb2

REPORT_EVERY = timedelta(seconds=60)  # where nothing but the age of a run has changed
OWN_NAMES = ("agent", "scheduler", "prolog", "epilog")
_OUTCOMES = {
    health_pb2.OUTCOME_OK: "ok",
    health_pb2.OUTCOME_FINDINGS: "findings",
    health_pb2.OUTCOME_SKIPPED: "skipped",
    health_pb2.OUTCOME_HUNG: "hung",
}


def reports(state: FleetState, heard: Callable[[str], Seen | None]) -> list[ChecksReported]:
    """What is new of the nodes that a drain of ours keeps out of work, or whose reboot is awaited."""
    known = nodes_of(state.nodes)
    busy = (known[name] for name in sorted(known.busy))
    wanted = (n for n in busy if (n.drain is not None and not n.drain.theirs) or n.reboot_at)
    found = ((node, _report(node, heard(node.node))) for node in wanted)
    return [report for node, report in found if report is not None and _is_news(node, report)]


@functools.cache
def checks_by_fault() -> Mapping[str, frozenset[str]]:
    """Fault code -> the names of the checks that can see it."""
    from nodetriage.checks.registry import ALL  # loads every check, which only a drained node is worth

    found: dict[str, set[str]] = {}
    for check in ALL:
        for fault in check.faults:
            found.setdefault(fault, set()).add(check.name)
    return {fault: frozenset(names) for fault, names in found.items()}


def known_names() -> frozenset[str]:
    """Of checks and faults: the catalogue's, and those under which agent, controller and hooks report on themselves."""
    from nodetriage.checks.registry import all_checks

    checks, _ = all_checks()
    return frozenset((*faults(), *(check.name for check in checks), *OWN_NAMES))


def _report(node: NodeFacts, heard: Seen | None) -> ChecksReported | None:
    if heard is None or heard.heartbeat is None or heard.heartbeat_us is None:
        return None
    if heard.heartbeat.boot_id != node.boot_id:
        return None
    causes = node.drain.causes if node.drain is not None else ()
    seeing = {f.check for f in node.findings if f.fault in causes}.union(
        *(checks_by_fault().get(c, ()) for c in causes)
    )
    checks = [_fact(state, heard.heartbeat_us) for state in heard.heartbeat.checks if state.check in seeing]
    checks.sort(key=lambda c: c.check)
    return ChecksReported(node.node, node.boot_id, from_us(heard.heartbeat_us), tuple(checks[:MOST_CHECKS]))


def _fact(state: health_pb2.CheckState, heard_us: int) -> CheckFact:
    ran_at: datetime | None = None if state.age_ms == NEVER_RAN else from_us(heard_us - state.age_ms * 1000)
    return CheckFact(state.check, _OUTCOMES.get(state.outcome, "broken"), ran_at)


def _is_news(node: NodeFacts, report: ChecksReported) -> bool:
    last = node.checks
    if last is None or report.at - last.at >= REPORT_EVERY or node.reboot_at is not None:
        return last is None or report.at > last.at
    if [(c.check, c.outcome) for c in last.checks] != [(c.check, c.outcome) for c in report.checks]:
        return True
    drain = node.drain
    since = (drain.clear_since or drain.wanted_at) if drain is not None else report.at
    return any(_ran(new, since) and not _ran(old, since) for old, new in zip(last.checks, report.checks, strict=True))


def _ran(check: CheckFact, since: datetime) -> bool:
    return check.ran_at is not None and check.ran_at > since
