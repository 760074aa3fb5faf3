"""When a finding began, by the controller's clock: what a node's own clock says counts least."""

from datetime import UTC, datetime, timedelta

import pytest
from checked import step

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.state import EventKind, FleetState, NodeEvent
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
