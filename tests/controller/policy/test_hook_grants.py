"""What the nodes' Slurm hooks may refuse jobs for: no more nodes than the limit in any window, whatever happens."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import transition
from nodetriage.controller.policy.hooks import grants
from nodetriage.controller.policy.state import EventKind, FleetState, NodeEvent, Tick
from nodetriage.controller.settings.limits import DrainLimits, HookLimits
from nodetriage.controller.settings.rules import Mode, Policy

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
WINDOW_S = 600
POLICY = Policy(
    mode=Mode.ENFORCE,
    drain_limits=DrainLimits(max_drains_per_hour=0),
    hooks=HookLimits(mode="enforce", max_nodes=2, window_s=WINDOW_S),
)


class Fleet:
    """The pure policy alone, with a clock that the test turns."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.state, self.policy, self.now, self.events = FleetState(), policy, NOW, 0

    def tell(self, node: str, kind: EventKind, fault: str = "gpu_off_bus") -> None:
        self.events += 1
        event = NodeEvent(
            self.events, node, "boot", self.events, self.now, kind, "gpu_xid", "GPU-1", fault, Severity.CRITICAL
        )
        self.state = transition.step(self.state, event, self.now, self.policy).state

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.state = transition.step(self.state, Tick(), self.now, self.policy).state

    def granted(self) -> set[str]:
        return {name for name, facts in self.state.hooks.items() if facts.granted}


def test_a_critical_fault_of_a_nodes_own_hardware_gives_its_hooks_leave() -> None:
    fleet = Fleet()
    fleet.tell("n1", EventKind.RAISED)
    assert fleet.granted() == {"n1"}


def test_what_the_limits_let_through_needs_no_hook() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, hooks=HookLimits(mode="enforce")))
    fleet.tell("n1", EventKind.RAISED)
    assert fleet.granted() == set()


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_no_hook_goes_beyond_the_controllers_own_mode(mode: Mode) -> None:
    policy = Policy(mode=mode, hooks=HookLimits(mode="enforce"))
    fleet = Fleet(policy)
    fleet.tell("n1", EventKind.RAISED)
    assert grants.mode(policy) is mode
    assert fleet.granted() == set()


def test_hooks_observe_where_nobody_says_otherwise() -> None:
    assert grants.mode(Policy(mode=Mode.ENFORCE)) is Mode.OBSERVE


def test_a_fault_that_is_over_takes_the_leave_back_and_its_place_stays_taken_for_the_window() -> None:
    fleet = Fleet()
    fleet.tell("n1", EventKind.RAISED)
    fleet.tell("n1", EventKind.CLEARED)
    assert fleet.granted() == set()
    assert grants.used(fleet.state, fleet.now, POLICY.hooks) == {"n1"}
    fleet.wait(WINDOW_S + 1)
    assert grants.used(fleet.state, fleet.now, POLICY.hooks) == set()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("raise"), st.integers(1, 6)),
        st.tuples(st.just("clear"), st.integers(1, 6)),
        st.tuples(st.just("refuse"), st.integers(1, 6)),
        st.tuples(st.just("wait"), st.sampled_from([1, 200, WINDOW_S, 2 * WINDOW_S])),
    ),
    max_size=40,
)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_no_more_nodes_than_the_limit_have_leave_in_any_window(steps: list[tuple[str, int]]) -> None:
    fleet = Fleet()
    given_at: list[tuple[datetime, str]] = []
    for verb, number in steps:
        if verb == "wait":
            fleet.wait(number)
        else:
            kinds = {"raise": EventKind.RAISED, "clear": EventKind.CLEARED, "refuse": EventKind.REFUSED}
            fleet.tell(f"n{number}", kinds[verb])
        given_at += [(fleet.now, name) for name in fleet.granted()]
        within = {name for at, name in given_at if fleet.now - at < timedelta(seconds=WINDOW_S)}
        assert len(within) <= POLICY.hooks.max_nodes
