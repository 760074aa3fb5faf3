"""The policy: `step(state, event, now, policy)` is all of it, and pure. What it returns is recorded before it is done.

findings.py keeps what is known of a node, evaluate.py says what that leads to, drain_limits.py how many drains at once,
breaker.py when to stop, common_mode.py what is no single node's fault, requeues.py what becomes of jobs, recovery.py
the way back, preconditions.py whether what was recorded is still to be done. Here is which event concerns whom.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from nodetriage.controller.policy import (
    breaker,
    common_mode,
    drain_limits,
    evaluate,
    findings,
    lemon,
    liveness,
    maintenance,
    recovery,
    requeues,
)
from nodetriage.controller.policy.agents import restored
from nodetriage.controller.policy.drains import held, repair, return_gate
from nodetriage.controller.policy.fleet_state import AgentAhead, ChecksReported, LemonsFound
from nodetriage.controller.policy.hooks import grants, refusals
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.orders import fleet as fleet_orders
from nodetriage.controller.policy.orders import take as orders
from nodetriage.controller.policy.state import (
    ActionDone,
    ActionKind,
    ActionOutcome,
    ContactChanged,
    DrainFact,
    DrainStatus,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    NodeFacts,
    OperatorCommand,
    SchedulerFailed,
    SchedulerSeen,
    Step,
    Tick,
)
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Mode, Policy


def step(state: FleetState, event: Event, now: datetime, policy: Policy) -> Step:
    """What one event leads to. Never raises for what an event says."""
    work = UnitOfWork(state, now)
    names = tuple(_take(work, event, policy))
    _evaluate(work, names, policy)
    if isinstance(event, SchedulerSeen | Tick):
        work.ask_limits = True
    if work.ask_limits or work.wanting:
        drain_limits.release(work, policy, None if work.ask_limits else work.wanting)
        held.tell(work, policy, None if isinstance(event, Tick) else names)
    grants.decide(work, names, policy)
    return work.step()


def _take(work: UnitOfWork, event: Event, policy: Policy) -> Iterable[str]:
    """Takes the event in; returns the nodes to look at because of it."""
    match event:
        case NodeEvent():
            if not event.overtakes:
                work.set_cursor(event.id)
            name = findings.learn(work, event, policy)
            if name and event.kind is EventKind.REFUSED:
                refusals.take(work, event, policy)
            return (name, *common_mode.told(work, name, event.fault, policy)) if name else ()
        case SchedulerSeen():
            breaker.answered(work)
            restored.compare(work, event)
            repair.compare(work, event)
            return recovery.compare(work, event, policy)
        case ActionDone():
            return _done(work, event, policy)
        case OperatorCommand():
            return orders.take(work, event, policy)
        case ContactChanged():
            liveness.changed(work, event, policy.breaker)
        case ChecksReported():
            return return_gate.reported(work, event)
        case AgentAhead():
            restored.agent_ahead(work, event)
        case SchedulerFailed():
            breaker.count_failure(work, policy.breaker)
        case LemonsFound():
            lemon.found(work, event, policy)
        case Tick():
            requeues.tick(work, policy)
            return _tick(work, event, policy)
    return ()


def _evaluate(work: UnitOfWork, names: Iterable[str], policy: Policy) -> None:
    for name in dict.fromkeys(names):
        evaluate.node(work, name, policy)


def _tick(work: UnitOfWork, event: Tick, policy: Policy) -> tuple[str, ...]:
    fleet_orders.tick(work)
    freed = (*maintenance.tick(work), *common_mode.tick(work, policy))
    horizon = evaluate.horizon(policy)
    waiting = (n.node for n in work.busy() if event.thorough or evaluate.waits(n, work.now, horizon))
    return (*freed, *waiting)


def _done(work: UnitOfWork, done: ActionDone, policy: Policy) -> tuple[str, ...]:
    action = done.action
    if done.outcome is not ActionOutcome.CANCELLED:
        breaker.answered(work)
    node = work.node(action.node)
    if done.outcome is ActionOutcome.CANCELLED and action.kind is ActionKind.REQUEUE:
        requeues.forget(work, action)
    if node is None or node.drain is None or node.drain.incident != action.incident:
        return ()
    if done.outcome is ActionOutcome.CANCELLED:
        _called_off(work, node, node.drain, action.kind)
    elif action.kind is ActionKind.DRAIN:
        _drained(work, node, node.drain, done, policy)
    elif action.kind is ActionKind.UNDRAIN:
        recovery.returned(work, node, node.drain, done)
    elif action.kind in (ActionKind.REQUEUE, ActionKind.CANCEL) and done.outcome is ActionOutcome.REFUSED:
        text = f"{action.kind} of job {action.job} was refused: {done.text}"
        work.notify(NoticeKind.JOB_REFUSED, action.id, text, node=node.node, incident=node.drain.incident)
    return (node.node,)


def _called_off(work: UnitOfWork, node: NodeFacts, drain: DrainFact, kind: ActionKind) -> None:
    """It was not done: the drain is where it was before it was asked for."""
    if kind is ActionKind.DRAIN and drain.status is DrainStatus.ASKED:
        if drain.done_at is None:
            work.put(replace(node, drain=replace(drain, status=DrainStatus.WANTED)))
        else:  # it was about the jobs of a node that is drained
            work.put(replace(node, drain=replace(drain, status=DrainStatus.DONE, requeue=False)))
        work.ask_limits = True
    elif kind is ActionKind.UNDRAIN and drain.status is DrainStatus.RETURNING:
        work.put(replace(node, drain=replace(drain, status=DrainStatus.DONE)))


def _drained(work: UnitOfWork, node: NodeFacts, drain: DrainFact, done: ActionDone, policy: Policy) -> None:
    theirs = done.outcome is ActionOutcome.THEIRS
    if theirs and drain.refused_job and not done.action.job and node.maintenance is None:
        drain_limits.ask_again(work, node, drain)  # the refusal became known after the drain was asked for
        return
    first = drain.done_at is None and not theirs
    drain = replace(drain, status=DrainStatus.DONE, done_at=work.now, theirs=theirs)
    node = replace(node, drain=drain)
    if first:
        node = replace(node, removals=(*lemon.recent(node, work.now, policy.lemon), work.now))
    work.put(node)
    if theirs:
        work.ask_limits = True
    if drain.requeue and policy.mode is Mode.ENFORCE:
        requeues.decide(work, node, drain, done.jobs, policy)
    elif policy.mode is Mode.ENFORCE and not (drain.requeue or theirs):
        requeues.warn(work, node, drain, done.jobs, policy)
    if drain.requeue or not done.jobs:
        recovery.empty(work, node, "already drained by another" if theirs else f"drained for {drain.fault}")
