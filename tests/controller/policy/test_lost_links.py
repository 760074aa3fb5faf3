"""A lost link from the check's readings through the agent's verdict to the policy: known at once, acted on later."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import Kind, Verdict, advance
from nodetriage.checks.fabric.ib_link import CHECK, Policy, Role
from nodetriage.checks.model import Outcome
from nodetriage.checks.readers.ib_port import Port
from nodetriage.controller.policy import transition
from nodetriage.controller.policy.state import ActionKind, EventKind, FleetState, NodeEvent, SchedulerSeen, Tick
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings import rules

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
UP = Port("mlx5_0/1", 1000.0, "ACTIVE", "LinkUp", 400, 4, "NDR", "InfiniBand", "0000:18:00.0", downed=0)
DOWN = replace(UP, state="DOWN", phys_state="Polling", downed=1)
SETTINGS = Policy(roles={"compute": Role(hcas=("mlx5_*",), rate_gbps=400)})


def drains(*looks: tuple[float, Port]) -> list[float]:
    """The seconds after the first look at which the policy drains the node, when the port is seen in these states."""
    verdict, memory, state, number, found = Verdict("b"), None, FleetState(), 0, []
    policy = rules.Policy(mode=rules.Mode.ENFORCE)
    for event in (
        NodeEvent(0, "n1", "b", 1, NOW, EventKind.STARTED),
        SchedulerSeen(NOW, {"n1": NodeView("n1", "idle")}),
    ):
        state = transition.step(state, event, NOW, policy).state
    seen = dict(looks)
    for second in range(300):
        now = NOW + timedelta(seconds=second)
        events: list[NodeEvent] = []
        if second in seen:
            reading = (replace(seen[second], at_s=1000.0 + second),)
            findings = tuple(CHECK.judge(reading, memory, SETTINGS))
            memory = CHECK.next_state(memory, reading)
            result = Result("ib_link", Outcome.FINDINGS if findings else Outcome.OK, findings)
            verdict, changes = advance(verdict, CHECK, result, 1000.0 + second)
            for change in changes:
                if change.kind in (Kind.RAISED, Kind.CLEARED):
                    number += 1
                    what = (change.check, change.component, change.fault, change.severity)
                    kind = EventKind[change.kind.name]
                    events.append(NodeEvent(number, "n1", "b", number + 1, now, kind, *what))
        for event in (*events, Tick()):
            step = transition.step(state, event, now, policy)
            state = step.state
            found += [float(second) for action in step.actions if action.kind is ActionKind.DRAIN]
    return found


def test_a_link_that_trains_anew_for_two_seconds_drains_nobody() -> None:
    assert drains((0, UP), (60, DOWN), (62, replace(UP, downed=1))) == []


@pytest.mark.parametrize("again_s", [3, 13, 40])
def test_nor_does_one_whose_return_is_seen_only_when_the_check_looks_again(again_s: int) -> None:
    assert drains((0, UP), (60, DOWN), (60 + again_s, replace(UP, downed=1))) == []


def test_a_link_that_stays_down_drains_the_node_within_two_minutes() -> None:
    (at_s, *_) = drains((0, UP), *((s, DOWN) for s in (60, 63, 73, 120, 180, 240)))

    assert 60 + 45 <= at_s <= 180
