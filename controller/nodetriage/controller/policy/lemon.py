"""A node that fails again and again is a lemon: out of work until a person says otherwise. Pure.

Two things make one: so many removals of ours within a window, or the verdict of a study of the history.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.breaker import fleet_size
from nodetriage.controller.policy.fleet_state import LemonsFound, LemonVerdict
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainFact,
    DrainStatus,
    NodeFacts,
    NodeState,
)
from nodetriage.controller.policy.unit_of_work import CONTROLLER, UnitOfWork
from nodetriage.controller.settings.limits import Lemons
from nodetriage.controller.settings.rules import Mode, Policy

LEMON = "lemon"  # stands in place of a fault
TOLD_EVERY = timedelta(days=7)
MOST_TEXT = 1000


def recent(node: NodeFacts, now: datetime, rules: Lemons) -> tuple[datetime, ...]:
    """When we removed it within the window. Operators' drains and maintenance are none of these."""
    window = timedelta(seconds=rules.window_s)
    return tuple(at for at in node.removals if now - at < window)


def is_due(work: UnitOfWork, node: NodeFacts, rules: Lemons) -> bool:
    """Whether the next removal makes the node a lemon; a notice where the fleet has its most lemons already."""
    removals = len(recent(node, work.now, rules)) + 1
    if rules.max_removals == 0 or removals < rules.max_removals:
        return False
    return _has_room(work, node, f"was removed {removals} times", rules)


def found(work: UnitOfWork, event: LemonsFound, policy: Policy) -> None:
    """Takes the verdicts of a study: each is reported, and where the policy enforces them the node becomes a lemon."""
    for verdict in event.verdicts:
        node = work.node(verdict.node)
        if (
            node is None
            or node.state is not NodeState.HEALTHY
            or node.maintenance is not None
            or _lifted(work, node, policy)
        ):
            continue
        if policy.lemon.evidence == "enforce" and policy.mode is Mode.ENFORCE:
            if _has_room(work, node, "fails far more often than the others", policy.lemon):
                make(work, node, CONTROLLER, verdict.why)
                text = f"{node.node} is a lemon and is drained after its jobs. {verdict.why}"
                work.notify(NoticeKind.LEMON_FOUND, f"{node.node}-{work.stamp}", text, node=node.node)
        else:
            _only_tell(work, node, verdict)


def _only_tell(work: UnitOfWork, node: NodeFacts, verdict: LemonVerdict) -> None:
    """In shadow: what would be done, once a week while the verdict stands."""
    told_at = node.upkeep.lemon_told_at
    if told_at is not None and work.now - told_at < TOLD_EVERY:
        return
    about = f"{node.node}-{work.stamp}"
    work.act(Action(f"shadow-lemon-{about}", ActionKind.SHADOW, node.node, fault=LEMON, text="drain_after_job"))
    then = f"`nodetriagectl lemon set {node.node} --reason WHY` takes it out"
    text = f'{node.node} looks like a lemon; [lemon] evidence = "shadow" keeps it in work. {verdict.why} {then}.'
    work.notify(NoticeKind.LEMON_FOUND, about, text[:MOST_TEXT], node=node.node)
    work.put(replace(node, upkeep=replace(node.upkeep, lemon_told_at=work.now)))


def make(work: UnitOfWork, node: NodeFacts, actor: str, cause: str) -> None:
    """From Healthy to Lemon: the node is drained, and its jobs may end. An operator alone lifts it."""
    drain = DrainFact(
        incident=work.new_incident(),
        fault=LEMON,
        component="node",
        severity=Severity.MAJOR,
        requeue=False,
        status=DrainStatus.WANTED,
        wanted_at=work.now,
        causes=(LEMON,),
        queued_reason="it is a lemon",
        ordered_by=actor,
    )
    work.move(replace(node, drain=drain), NodeState.LEMON, cause=cause[:MOST_TEXT], actor=actor)
    work.ask_limits = True


def _lifted(work: UnitOfWork, node: NodeFacts, policy: Policy) -> bool:
    """An operator's word that it is no lemon stands for a window."""
    at = node.upkeep.lemon_lifted_at
    return at is not None and work.now - at < timedelta(seconds=policy.lemon.window_s)


def _has_room(work: UnitOfWork, node: NodeFacts, why: str, rules: Lemons) -> bool:
    """Whether the fleet may have one lemon more. Tells where it may not."""
    _, lemons = work.counts()
    if lemons < rules.most(fleet_size(work.fleet)):
        return True
    text = f"{node.node} {why}, but {lemons} nodes are lemons already: treated as before"
    work.notify(NoticeKind.LEMON_LIMIT, f"{node.node}-{work.stamp}", text, node=node.node)
    return False
