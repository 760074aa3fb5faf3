"""When a finding began, by the controller's clock: what a node's own clock says counts least."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from checked import step

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.state import EventKind, FleetState, NodeEvent, SchedulerSeen, Tick
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.limits import DrainLimits
from nodetriage.controller.settings.rules import Mode, Policy

BOOTED = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def began(*events: tuple[timedelta, timedelta, timedelta]) -> list[datetime]:
    """For (since the boot, until it is received, the node's clock is off by): when each of these findings began."""
    state = FleetState()
    for k, (up, late, skew) in enumerate(events, 1):
        received_at, at = BOOTED + up + late, BOOTED + up + skew
        about = ("fs_mounts", f"/m{k}", "mount_hung", Severity.CRITICAL)
        event = NodeEvent(
            k, "n1", "b", k, at, EventKind.RAISED, *about, received_at=received_at, at_boot_s=up.total_seconds()
        )
        state = step(state, event, received_at, Policy(mode=Mode.OBSERVE)).state
    found = {f.component: f.raised_at for f in state.nodes["n1"].findings}
    return [found[f"/m{k}"] for k in range(1, len(events) + 1)]


@pytest.mark.parametrize("skew", [-HOUR, timedelta(0), HOUR])
def test_a_node_whose_clock_is_an_hour_off_has_a_fault_when_it_has_it(skew: timedelta) -> None:
    assert began((10 * HOUR, timedelta(0), skew)) == [BOOTED + 10 * HOUR]


def test_a_clock_that_steps_between_two_faults_changes_neither() -> None:
    now = timedelta(0)

    assert began((10 * HOUR, now, now), (11 * HOUR, now, -HOUR), (12 * HOUR, now, HOUR)) == [
        BOOTED + k * HOUR for k in (10, 11, 12)
    ]


def test_what_is_delivered_late_began_when_it_did_and_not_when_it_came() -> None:
    assert began((HOUR, timedelta(0), timedelta(0)), (2 * HOUR, 5 * HOUR, timedelta(0)))[1] == BOOTED + 2 * HOUR


def test_a_node_that_claims_to_be_up_for_longer_than_it_is_tells_nothing_of_the_future() -> None:
    early, later = began((20 * HOUR, timedelta(0), timedelta(0)), (50 * HOUR, -20 * HOUR, timedelta(0)))

    assert (early, later) == (BOOTED + 20 * HOUR, BOOTED + 30 * HOUR)


def fleet_of(size: int) -> FleetState:
    state = FleetState()
    for k in range(size):
        started = NodeEvent(k + 1, f"n{k}", "b", 1, BOOTED, EventKind.STARTED, version="1")
        state = step(state, started, BOOTED, RULES).state
    views = {f"n{k}": NodeView(f"n{k}", "idle") for k in range(size)}
    return step(state, SchedulerSeen(BOOTED, views), BOOTED, RULES).state


def told(
    state: FleetState, names: Iterable[str], now: datetime, kind: EventKind, up: timedelta, **about: str
) -> FleetState:
    """Each node reports a lost GPU: the time since its boot is `up`, whatever the controller's clock says."""
    for name in names:
        number = state.cursor + 1000
        what = ("gpu_count", "gpus", "gpu_missing", Severity.CRITICAL)
        times = {"received_at": now, "at_boot_s": up.total_seconds()}
        event = NodeEvent(number, name, "b", number, now, kind, *what, **times, **about)  # type: ignore[arg-type]
        state = step(state, event, now, RULES).state
    return state


RULES = Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(1000, 1000, 100, 1000, 100))
NAMES = [f"n{k}" for k in range(12)]


def drained(state: FleetState) -> set[str]:
    return {n.node for n in state.nodes.values() if n.drain is not None}


def test_a_version_that_is_rolled_back_does_not_drain_the_nodes_that_its_incident_covers() -> None:
    now = BOOTED + HOUR
    state = told(fleet_of(40), NAMES, now, EventKind.RAISED, HOUR, version="2")
    assert [i.place for i in state.fleet_incidents] == ["agent 2"]
    for name in NAMES:
        back = NodeEvent(state.cursor + 1, name, "b", state.cursor + 1, now, EventKind.STARTED, version="1")
        state = step(state, back, now + HOUR / 60, RULES).state
    state = step(state, Tick(thorough=True), now + HOUR / 4, RULES).state

    assert drained(state) == set()


def test_after_a_step_of_the_controller_s_clock_a_second_incident_of_a_fault_is_still_one() -> None:
    up, step_s = 2 * HOUR, HOUR
    state = told(fleet_of(40), NAMES, BOOTED + up, EventKind.RAISED, up, version="2")
    state = told(state, NAMES, BOOTED + up + HOUR / 12, EventKind.CLEARED, up + HOUR / 12, version="2")
    for k in range(1, 6):  # the clock is an hour ahead from here on; the incident ends
        state = step(state, Tick(), BOOTED + up + step_s + k * HOUR / 6, RULES).state
    assert state.fleet_incidents == ()
    up += HOUR * 0.95
    now = BOOTED + up + step_s
    state = told(state, NAMES, now, EventKind.RAISED, up, version="2")
    state = step(state, Tick(thorough=True), now + HOUR / 4, RULES).state

    assert len(state.fleet_incidents) == 1
    assert drained(state) == set()
