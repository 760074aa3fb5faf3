"""Each invariant is found where it is broken, and the state of an ordinary step breaks none."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import checked
import pytest

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import transition
from nodetriage.controller.policy.fleet_state import BreakerFacts, FleetIncident, MaintenanceFact
from nodetriage.controller.policy.notices import Reply
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainStatus,
    EventKind,
    FleetState,
    NodeEvent,
    NodeState,
    Step,
    Transition,
)
from nodetriage.controller.policy.verify.invariants import check_invariants, check_step
from nodetriage.controller.settings.limits import DrainLimits
from nodetriage.controller.settings.rules import Mode, Policy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ENFORCE = Policy(mode=Mode.ENFORCE)
RAISED = NodeEvent(1, "n1", "b", 1, NOW, EventKind.RAISED, "gpu_xid", "p", "gpu_off_bus", Severity.CRITICAL)
STEP = transition.step(FleetState(), RAISED, NOW, ENFORCE)
NODE = STEP.state.nodes["n1"]
DRAIN = NODE.drain
assert DRAIN is not None


def with_node(**changed: Any) -> FleetState:
    return replace(STEP.state, nodes={"n1": replace(NODE, **changed)})


def with_drain(**changed: Any) -> FleetState:
    assert DRAIN is not None
    return with_node(drain=replace(DRAIN, **changed))


INCIDENT = FleetIncident(DRAIN.incident, "gpu_off_bus", ("gpu_xid",), "", "", NOW, 4, NOW)
STATES = {
    "its facts are those of": replace(STEP.state, nodes={"n2": NODE}),
    "is Suspect without a drain": with_node(drain=None),
    "is Healthy with a drain": with_node(state=NodeState.HEALTHY),
    "has no incident or no cause": with_drain(causes=()),
    "the reason why it is held is ''": with_drain(status=DrainStatus.WANTED),
    "the reason why it is held is 'x'": with_drain(queued_reason="x"),
    "was never done": with_drain(status=DrainStatus.DONE),
    "is another's": with_drain(status=DrainStatus.RETURNING, theirs=True, done_at=NOW),
    "more than 256": with_node(findings=tuple(replace(NODE.findings[0], component=str(i)) for i in range(257))),
    "is there twice": with_node(findings=NODE.findings * 2),
    "it is two incidents": replace(STEP.state, fleet_incidents=(INCIDENT,)),
    "open without a reason": replace(STEP.state, breaker=BreakerFacts(opened_at=NOW)),
    "not what the nodes' findings say": replace(STEP.state, showing={}),
}


@pytest.mark.parametrize(("says", "state"), STATES.items())
def test_a_state_that_cannot_be_is_found(says: str, state: FleetState) -> None:
    assert [text for text in check_invariants(state) if says in text]


def test_the_state_after_an_ordinary_step_breaks_no_invariant() -> None:
    assert check_invariants(STEP.state) == ()
    assert check_step(FleetState(), RAISED, STEP, NOW, ENFORCE) == ()


UNDRAIN = Action("u", ActionKind.UNDRAIN, "n1", DRAIN.incident)
ILLEGAL = Transition("n1", NodeState.SUSPECT, NodeState.RETIRED, "why", "who", NOW)
STEPS: dict[str, Callable[[Step], Step]] = {
    "a transition leaves": lambda s: s._replace(transitions=s.transitions[1:]),
    "is not allowed": lambda s: s._replace(transitions=(*s.transitions, ILLEGAL)),
    "has no cause or no actor": lambda s: s._replace(transitions=(*s.transitions[:-1], _without_cause(s))),
    "its last transition enters": lambda s: s._replace(transitions=s.transitions[:1]),
    "decided twice in one step": lambda s: s._replace(actions=s.actions * 2),
    "something else has one": lambda s: s._replace(reply=Reply(True)),
    "has no drain of incident": lambda s: s._replace(actions=(replace(s.actions[0], incident="other"),)),
    "is in maintenance": lambda s: s._replace(
        state=with_node(maintenance=MaintenanceFact(NOW, "olga", "fan", "operator"))
    ),
    "not ours to lift": lambda s: s._replace(actions=(UNDRAIN,)),
    "is still there": lambda s: s._replace(
        state=with_drain(status=DrainStatus.RETURNING, done_at=NOW), actions=(UNDRAIN,)
    ),
    "has no open finding": lambda s: s._replace(state=with_node(findings=())),
}


def _without_cause(step: Step) -> Transition:
    return replace(step.transitions[-1], cause="")


@pytest.mark.parametrize(("says", "broken"), STEPS.items())
def test_a_step_that_must_not_be_is_found(says: str, broken: Callable[[Step], Step]) -> None:
    assert [t for t in check_step(FleetState(), RAISED, broken(STEP), NOW, ENFORCE) if says in t]


@pytest.mark.parametrize(
    ("says", "policy"),
    [
        ("decided in mode observe", replace(ENFORCE, mode=Mode.OBSERVE)),
        ("1 drains within an hour, more than 0", replace(ENFORCE, drain_limits=DrainLimits(max_drains_per_hour=0))),
        ("1 nodes newly drained at once, more than 0", replace(ENFORCE, drain_limits=DrainLimits(max_nodes=0))),
    ],
)
def test_a_drain_beyond_what_the_policy_allows_is_found(says: str, policy: Policy) -> None:
    assert [t for t in check_step(FleetState(), RAISED, STEP, NOW, policy) if says in t]


def test_a_drain_that_an_open_breaker_let_through_is_found() -> None:
    opened = BreakerFacts(opened_at=NOW, why="looked at")
    before, after = FleetState(breaker=opened), replace(STEP.state, breaker=opened)
    broken = check_step(before, RAISED, STEP._replace(state=after), NOW, ENFORCE)
    assert [t for t in broken if "while the breaker is open" in t]


def test_numbers_that_go_back_are_found() -> None:
    assert [t for t in check_step(FleetState(cursor=9), RAISED, STEP, NOW, ENFORCE) if "the cursor or the number" in t]


def test_a_step_of_a_test_is_checked() -> None:
    with pytest.raises(AssertionError, match="showing"):
        checked.step(replace(STEP.state, showing={"x": {"n9": NOW}}), replace(RAISED, id=2, seq=2), NOW, ENFORCE)
