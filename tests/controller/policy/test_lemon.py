"""A study's verdict is reported in shadow, makes a lemon where enforced, and never goes against an operator's word."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from checked import Steps

from nodetriage.controller.policy.fleet_state import LemonsFound, LemonVerdict, MaintenanceFact
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.orders.command import OperatorCommand
from nodetriage.controller.policy.state import (
    ActionDone,
    ActionKind,
    ActionOutcome,
    Event,
    FleetState,
    NodeFacts,
    NodeState,
    Step,
)
from nodetriage.controller.settings.limits import DrainLimits, Lemons
from nodetriage.controller.settings.rules import Mode, Policy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
WHY = "n1: in the 28 days to 2026-11-30 it was out of service 7 times where 0.3 were to be expected."
FOUND = LemonsFound(NOW, (LemonVerdict("n1", 1e-6, WHY),))
ROOMY = DrainLimits(100, 100, 100, 100, 100)
ENFORCE = Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, lemon=Lemons(evidence="enforce"))
SHADOW = replace(ENFORCE, lemon=Lemons())


class Fleet:
    def __init__(self, policy: Policy, size: int = 100) -> None:
        self.policy, self.now, self.steps = policy, NOW, Steps()
        nodes = {f"n{i}": NodeFacts(f"n{i}", NodeState.HEALTHY, NOW) for i in range(size)}
        self.state = FleetState(nodes=nodes, sizes={"": size})

    def take(self, event: Event, after: timedelta = timedelta(seconds=1)) -> Step:
        self.now += after
        step = self.steps.step(self.state, event, self.now, self.policy)
        self.state = step.state
        return step

    def change(self, name: str, **facts: object) -> None:
        node = replace(self.state.nodes[name], **facts)  # type: ignore[arg-type]
        self.state = replace(self.state, nodes={**self.state.nodes, name: node})


def kinds(step: Step) -> list[NoticeKind]:
    return [notice.kind for notice in step.notices]


def test_in_shadow_a_verdict_is_reported_with_its_evidence_and_once_a_week() -> None:
    fleet = Fleet(SHADOW)
    step = fleet.take(FOUND)
    (notice,) = step.notices
    assert WHY in notice.text
    assert "nodetriagectl lemon set n1" in notice.text
    assert [a.kind for a in step.actions] == [ActionKind.SHADOW]
    assert fleet.state.nodes["n1"].state is NodeState.HEALTHY
    assert fleet.take(FOUND, timedelta(days=6)).notices == ()
    assert kinds(fleet.take(FOUND, timedelta(days=2))) == [NoticeKind.LEMON_FOUND]


def test_enforced_it_makes_a_lemon_whose_jobs_may_end_and_that_no_quiet_brings_back() -> None:
    fleet = Fleet(ENFORCE)
    step = fleet.take(FOUND)
    assert [(t.before, t.after, t.cause) for t in step.transitions] == [("Healthy", "Lemon", WHY)]
    (drain,) = step.actions
    assert (drain.kind, drain.fault) == (ActionKind.DRAIN, "lemon")
    node = fleet.state.nodes["n1"]
    assert node.drain is not None
    assert not node.drain.requeue
    fleet.take(ActionDone(drain, ActionOutcome.DONE))
    assert fleet.take(FOUND, timedelta(days=30)).transitions == ()
    assert fleet.state.nodes["n1"].state is NodeState.LEMON


def test_an_operator_lifts_it_with_a_reason_and_the_word_stands_for_a_window() -> None:
    fleet = Fleet(ENFORCE)
    (drain,) = fleet.take(FOUND).actions
    fleet.take(ActionDone(drain, ActionOutcome.DONE))
    no_reason = fleet.take(OperatorCommand("lemon_lift", "n1", "olga"))
    assert no_reason.reply is not None
    assert "give a reason" in no_reason.reply.text
    (undrain,) = fleet.take(OperatorCommand("lemon_lift", "n1", "olga", "new riser")).actions
    fleet.take(ActionDone(undrain, ActionOutcome.DONE))
    assert fleet.state.nodes["n1"].state is NodeState.HEALTHY
    assert fleet.take(FOUND).transitions == ()
    again = fleet.take(FOUND, timedelta(seconds=Lemons().window_s))
    assert [t.after for t in again.transitions] == ["Lemon"]


def test_in_shadow_an_operator_calls_a_verdict_wrong_and_sets_a_lemon_by_hand() -> None:
    fleet = Fleet(SHADOW)
    fleet.take(FOUND)
    lifted = fleet.take(OperatorCommand("lemon_lift", "n1", "olga", "its jobs were at fault"))
    assert lifted.reply is not None
    assert lifted.reply.accepted
    assert fleet.take(FOUND, timedelta(days=10)).notices == ()
    fleet.take(OperatorCommand("lemon_set", "n2", "olga", "four jobs died there"))
    assert fleet.state.nodes["n2"].state is NodeState.LEMON


def test_never_more_lemons_at_once_than_the_limit_allows() -> None:
    fleet = Fleet(replace(ENFORCE, lemon=Lemons(evidence="enforce", max_nodes=2)))
    step = fleet.take(LemonsFound(NOW, tuple(LemonVerdict(f"n{i}", 0.0, "why") for i in range(5))))
    assert [t.node for t in step.transitions] == ["n0", "n1"]
    assert kinds(step).count(NoticeKind.LEMON_LIMIT) == 3


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_outside_of_enforce_it_is_only_reported(mode: Mode) -> None:
    fleet = Fleet(replace(ENFORCE, mode=mode))
    assert fleet.take(FOUND).transitions == ()


def test_a_node_in_maintenance_out_of_work_or_unknown_is_left_alone() -> None:
    fleet = Fleet(ENFORCE)
    fleet.change("n1", maintenance=MaintenanceFact(NOW, "olga", "riser", "operator"))
    fleet.change("n2", state=NodeState.REPAIR)
    verdicts = tuple(LemonVerdict(name, 0.0, "why") for name in ("n1", "n2", "n999"))
    step = fleet.take(LemonsFound(NOW, verdicts))
    assert (step.transitions, step.actions, step.notices) == ((), (), ())
