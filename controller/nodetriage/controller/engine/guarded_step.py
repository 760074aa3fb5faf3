"""The policy's step behind the loop's boundary: a fault of the policy is logged and counted, and stops nothing."""

from dataclasses import replace
from datetime import datetime

import structlog

from nodetriage.controller.policy import transition
from nodetriage.controller.policy.state import Event, FleetState, NodeEvent, SchedulerSeen, Step
from nodetriage.controller.policy.verify.invariants import check_invariants, check_step
from nodetriage.controller.settings.rules import Policy

log = structlog.get_logger("reconciler")

MOST_BROKEN_LOGGED = 10  # of one step


def guarded_step(state: FleetState, event: Event, now: datetime, policy: Policy) -> tuple[Step, int]:
    """The step, and how many invariants it broke. An event that the policy fails on changes nothing but the cursor."""
    try:
        step = transition.step(state, event, now, policy)
    except Exception:  # the loop's boundary: one event must not stop what protects the fleet
        log.exception("the policy failed on an event and goes on without it", happened=repr(event)[:500])
        return Step(replace(state, cursor=event.id) if isinstance(event, NodeEvent) else state), 0
    broken = check_step(state, event, step, now, policy)
    if isinstance(event, SchedulerSeen):  # once a minute, because its cost grows with the fleet
        broken += check_invariants(step.state)
    for text in broken[:MOST_BROKEN_LOGGED]:
        log.error("invariant broken", invariant=text, happened=repr(event)[:500])
    return step, len(broken)
