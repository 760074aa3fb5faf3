"""The policy's step behind the loop's boundary: a fault of the policy is logged and counted, and stops nothing."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from nodetriage.controller.policy import transition
from nodetriage.controller.policy.notices import Notice
from nodetriage.controller.policy.state import (
    Action,
    Event,
    FleetState,
    NodeEvent,
    SchedulerSeen,
    Step,
    Transition,
)
from nodetriage.controller.policy.verify.invariants import check_invariants, check_step
from nodetriage.controller.settings.rules import Policy

log = structlog.get_logger("reconciler")

MOST_BROKEN_LOGGED = 10  # of one step


def steps(state: FleetState, events: Sequence[Event], now: datetime, policy: Policy) -> tuple[Step, int]:
    """All the steps as one, and how many invariants they broke."""
    actions, moved, notices, all_broken = list[Action](), list[Transition](), list[Notice](), 0
    step, touched = Step(state), set[str]()
    for event in events:
        step, broken = guarded_step(step.state, event, now, policy)
        all_broken += broken
        actions += step.actions
        moved += step.transitions
        notices += step.notices
        touched |= step.touched
    return Step(step.state, tuple(actions), tuple(moved), tuple(notices), step.reply, frozenset(touched)), all_broken


def log_step(step: Step) -> None:
    for t in step.transitions:
        log.info("node state", node=t.node, before=t.before or "", after=str(t.after), cause=t.cause, actor=t.actor)
    for a in step.actions:
        log.info("decided", action=a.id, kind=str(a.kind), node=a.node, job=a.job, fault=a.fault, text=a.text)
    for n in step.notices:
        log.warning("notice", kind=str(n.kind), node=n.node, incident=n.incident, text=n.text)


def guarded_step(state: FleetState, event: Event, now: datetime, policy: Policy) -> tuple[Step, int]:
    """The step, and how many invariants it broke. An event that the policy fails on changes nothing but the cursor."""
    try:
        step = transition.step(state, event, now, policy)
    except Exception:  # the loop's boundary: one event must not stop what protects the fleet
        log.exception("the policy failed on an event and goes on without it", happened=repr(event)[:500])
        if isinstance(event, NodeEvent) and not event.overtakes:
            state = replace(state, cursor=event.id)
        return Step(state), 0
    broken = check_step(state, event, step, now, policy)
    if isinstance(event, SchedulerSeen):  # once a minute, because its cost grows with the fleet
        broken += check_invariants(step.state)
    for text in broken[:MOST_BROKEN_LOGGED]:
        log.error("invariant broken", invariant=text, happened=repr(event)[:500])
    return step, len(broken)
