"""A job that a hook of ours refused: Slurm drains the node for it, and that drain is ours. Pure.

slurmd says "Prolog error" or "Epilog error". The agent's event says which fault it was, so the reason becomes ours, the
drain counts against the limits, and it ends like any other.
"""

from dataclasses import replace

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import breaker, drain_limits, evaluate
from nodetriage.controller.policy.fleet_state import AdmittedDrain
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import DrainFact, DrainStatus, FindingFact, NodeEvent, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Mode, Policy


def take(work: UnitOfWork, event: NodeEvent, policy: Policy) -> None:
    """The agent's event of the refusal."""
    node = work.node(event.node)
    if node is None or not event.present or node.boot_id != event.boot_id or node.maintenance is not None:
        return
    if policy.mode is not Mode.ENFORCE:
        text = f"a hook of {node.node} refused job {event.job} for {event.fault}, and the policy is in {policy.mode}"
        work.notify(NoticeKind.JOB_REFUSED_BY_HOOK, str(event.id), text, node=node.node)
        return
    if node.drain is None:
        rule = policy.rule_for(event.fault, Severity.CRITICAL, node.partitions, node.profile)
        evaluate.open_incident(work, node, rule, _finding(node, event, work), (event.fault,), policy)
        node = work.node(event.node) or node
    if node.drain is not None:
        _adopt(work, node, replace(node.drain, refused_job=event.job or "unknown"), policy)


def _adopt(work: UnitOfWork, node: NodeFacts, drain: DrainFact, policy: Policy) -> None:
    if drain.status is DrainStatus.WANTED:
        admitted = AdmittedDrain(node.node, work.now, node.partitions, drain.witnessed, refused=True)
        work.set_admitted((*(a for a in work.fleet.admitted if a.node != node.node), admitted))
        drain_limits.ask_again(work, node, drain)
        breaker.count_action(work, policy.breaker)
    elif drain.status is DrainStatus.DONE and drain.theirs:
        drain_limits.ask_again(work, node, drain)
    else:
        work.put(replace(node, drain=drain))


def _finding(node: NodeFacts, event: NodeEvent, work: UnitOfWork) -> FindingFact:
    """The finding that the refusal names; where it is over or unknown, as the event has it."""
    for finding in node.findings:
        if (finding.component, finding.fault) == (event.component, event.fault):
            return finding
    return FindingFact(
        check=event.check,
        component=event.component,
        fault=event.fault,
        severity=Severity.CRITICAL,
        raised_at=event.at,
        known_at=work.now,
        event_id=event.id,
        boot_id=event.boot_id,
        seq=event.seq,
        is_open=False,
    )
