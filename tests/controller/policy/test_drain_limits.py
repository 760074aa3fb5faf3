"""Drain limits: how many drains go through, which ones first, and that the rest waits."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import drain_limits
from nodetriage.controller.policy.state import DrainFact, DrainStatus, FleetState, NodeFacts, NodeState, Step
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import DrainLimits, Policy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NO_LIMIT = DrainLimits(1000, 1000, 100, 1000, 100)


def waiting(
    name: str,
    severity: Severity = Severity.CRITICAL,
    at_s: int = 0,
    partitions: tuple[str, ...] = ("main",),
    status: DrainStatus = DrainStatus.WANTED,
    *,
    theirs: bool = False,
) -> NodeFacts:
    at = NOW + timedelta(seconds=at_s)
    drain = DrainFact(name, "f", "p", severity, True, status, at, ("f",), theirs=theirs)
    return NodeFacts(name, NodeState.SUSPECT, at, partitions=partitions, drain=drain)


def fleet(*nodes: NodeFacts, size: int = 100, **more: int) -> FleetState:
    return FleetState(nodes={n.node: n for n in nodes}, sizes={"": size, "main": size, **more})


def released(state: FleetState, limits: DrainLimits, now: datetime = NOW) -> Step:
    work = UnitOfWork(state, now)
    drain_limits.release(work, Policy(drain_limits=limits))
    return work.step()


def names(step: Step) -> list[str]:
    return [a.node for a in step.actions]


def why(step: Step, name: str) -> str:
    drain = step.state.nodes[name].drain
    assert drain is not None
    return drain.held_why


def test_the_worst_goes_first_and_of_equals_the_oldest() -> None:
    state = fleet(waiting("a", Severity.MAJOR, 0), waiting("b", at_s=9), waiting("c", at_s=3))
    assert names(released(state, NO_LIMIT)) == ["c", "b", "a"]
    held = released(state, DrainLimits(max_drains_per_hour=1, max_percent=100, partition_max_percent=100))
    assert names(held) == ["c"]
    assert [n.node for n in drain_limits.held(held.state)] == ["b", "a"]
    assert why(held, "a") == "1 drains an hour"


def test_an_hour_later_there_is_room_again() -> None:
    limits = DrainLimits(max_drains_per_hour=1, max_percent=100, partition_max_percent=100)
    first = released(fleet(waiting("a"), waiting("b")), limits)
    assert names(released(first.state, limits, NOW + timedelta(minutes=59, seconds=59))) == []
    assert names(released(first.state, limits, NOW + timedelta(hours=1))) == ["b"]


def test_a_percentage_rounds_down_but_always_allows_one() -> None:
    three = tuple(waiting(x) for x in "abc")
    assert len(names(released(fleet(*three, size=59), DrainLimits(max_percent=5, partition_max_percent=100)))) == 2
    step = released(fleet(*three, size=3), DrainLimits(max_percent=5, partition_max_percent=100))
    assert len(names(step)) == 1
    assert why(step, "b") == "5 % of the fleet (1 of 3 nodes) at once"


def test_nothing_goes_through_a_limit_of_zero() -> None:
    for limits in (DrainLimits(max_nodes=0), DrainLimits(max_percent=0), DrainLimits(max_drains_per_hour=0)):
        assert names(released(fleet(waiting("a")), limits)) == []


def test_a_partition_has_its_own_limit_and_the_others_go_on() -> None:
    limits = DrainLimits(100, 100, 100, partition_max_nodes=1, partition_max_percent=100)
    state = fleet(
        waiting("a"),
        waiting("b"),
        waiting("c", partitions=("debug",)),
        waiting("d", partitions=("debug", "main")),
        debug=10,
    )
    step = released(state, limits)
    assert names(step) == ["a", "c"]
    assert why(step, "d") == "1 nodes of partition debug at once"


def test_nodes_that_others_drained_do_not_count() -> None:
    limits = DrainLimits(max_nodes=1, max_percent=100, partition_max_percent=100)
    theirs = waiting("a", status=DrainStatus.DONE, theirs=True)
    assert names(released(fleet(theirs, waiting("b")), limits)) == ["b"]
    ours = waiting("a", status=DrainStatus.DONE)
    assert names(released(fleet(ours, waiting("b")), limits)) == []


def test_a_hold_that_does_not_change_is_not_written_again() -> None:
    limits = DrainLimits(max_nodes=0)
    once = released(fleet(waiting("a")), limits).state
    assert released(once, limits).state is once


@pytest.mark.parametrize("status", [s for s in DrainStatus if s is not DrainStatus.WANTED])
def test_what_is_under_way_is_not_asked_for_again(status: DrainStatus) -> None:
    assert names(released(fleet(waiting("a", status=status)), NO_LIMIT)) == []


@given(
    st.lists(st.tuples(st.sampled_from(Severity), st.integers(0, 60)), max_size=30),
    st.integers(0, 10),
    st.integers(0, 10),
    st.integers(0, 100),
)
def test_every_limit_holds_and_nothing_is_lost(
    wanted: list[tuple[Severity, int]], per_hour: int, max_nodes: int, percent: int
) -> None:
    state = fleet(*(waiting(f"n{i}", *w) for i, w in enumerate(wanted)), size=40)
    step = released(state, DrainLimits(per_hour, max_nodes, percent, 1000, 100))
    share = max(1, 40 * percent // 100) if percent else 0
    assert len(step.actions) == min(len(wanted), per_hour, max_nodes, share)
    assert len(step.actions) + len(drain_limits.held(step.state)) == len(wanted)
    went = [a.severity for a in step.actions]
    left = [n.drain.severity for n in drain_limits.held(step.state) if n.drain]
    assert not went or not left or min(went) >= max(left)
