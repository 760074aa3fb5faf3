"""A wall clock that steps, or that of another controller: no drain is called off, repeated or late for it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from checked import Steps
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.policy.drains.elapsed import has_lasted, is_later
from nodetriage.controller.policy.liveness import CONTROLLER_BOOT, next_seq
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.state import (
    ActionDone,
    ActionKind,
    ActionOutcome,
    EventKind,
    FindingFact,
    FleetState,
    NodeEvent,
    NodeFacts,
    NodeState,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.rules import Mode, Policy, Response, Rule

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HELD = Rule(fault="gpu_off_bus", action=Response.DRAIN_AND_REQUEUE, hold_s=60)
POLICY = Policy(mode=Mode.ENFORCE, rule=(HELD,))
STEPS_S = st.sampled_from([-7200, -3600, -1800, -61, 61, 1800, 3600, 7200])


def raised(at: datetime, seq: int = 1) -> NodeEvent:
    what = ("gpu_xid", "p", "gpu_off_bus", Severity.CRITICAL)
    return NodeEvent(seq, "n1", "b", seq, at, EventKind.RAISED, *what, confidence=Confidence.WITNESSED)


@given(STEPS_S)
def test_a_drain_that_is_asked_for_is_done_once_whatever_the_clock_does(step_s: int) -> None:
    steps, stepped = Steps(), NOW + timedelta(seconds=61 + step_s)
    waiting = steps.step(FleetState(), raised(NOW), NOW, POLICY).state
    asked = steps.step(waiting, Tick(), NOW + timedelta(seconds=61), POLICY)
    (drain,) = asked.actions
    assert recheck(asked.state, drain, stepped, POLICY).then is Then.DO
    after = steps.step(asked.state, Tick(), stepped, POLICY)
    done = steps.step(after.state, ActionDone(drain, ActionOutcome.DONE), stepped, POLICY)
    last = steps.step(done.state, Tick(thorough=True), stepped + timedelta(seconds=1), POLICY)
    assert [a.kind for s in (after, done, last) for a in s.actions] == []
    assert last.state.nodes["n1"].state is NodeState.DRAINED


@given(STEPS_S)
def test_a_finding_that_waits_is_drained_for_once_and_within_twice_its_hold_time(step_s: int) -> None:
    steps, stepped = Steps(), NOW + timedelta(seconds=step_s)
    waiting = steps.step(FleetState(), raised(NOW), NOW, POLICY).state
    first = steps.step(waiting, Tick(thorough=True), stepped + timedelta(seconds=61), POLICY)
    second = steps.step(first.state, Tick(), stepped + timedelta(seconds=122), POLICY)
    assert [a.kind for a in (*first.actions, *second.actions)] == [ActionKind.DRAIN]


@given(STEPS_S)
def test_an_operators_resume_is_noticed_after_a_step(step_s: int) -> None:
    steps, stepped = Steps(), NOW + timedelta(seconds=70 + step_s)
    state = steps.step(FleetState(), raised(NOW), NOW, POLICY).state
    asked = steps.step(state, Tick(), NOW + timedelta(seconds=61), POLICY)
    done = steps.step(asked.state, ActionDone(asked.actions[0], ActionOutcome.DONE), NOW, POLICY)
    seen = SchedulerSeen(stepped, {"n1": NodeView("n1", "idle")})
    after = steps.step(done.state, seen, stepped, POLICY)
    is_small_step_back = -600 <= step_s < 0
    assert is_small_step_back or after.notices


@given(st.integers(-7_200_000_000, 7_200_000_000))
def test_the_controllers_own_events_are_in_order_whatever_the_clock_does(step_us: int) -> None:
    own = FindingFact("scheduler", "node", "node_lost", Severity.CRITICAL, NOW, NOW, 1, CONTROLLER_BOOT, 10**15)
    node = NodeFacts("n1", NodeState.HEALTHY, NOW, findings=(own,))
    assert next_seq(node, 10**15 + step_us) > own.seq
    assert next_seq(replace(node, findings=()), 5) == 5


def test_what_lies_ahead_has_lasted_and_a_reading_from_before_is_not_later() -> None:
    second = timedelta(seconds=1)
    assert has_lasted(NOW - second, NOW, 1)
    assert not has_lasted(NOW, NOW, 1)
    assert has_lasted(NOW + second, NOW, 3600)
    assert is_later(NOW + second, NOW)
    assert not is_later(NOW - second, NOW)
    assert is_later(NOW - timedelta(hours=1), NOW)
