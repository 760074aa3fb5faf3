"""A few bad days of a small fleet: the whole month of a large one is bench/chaos.py."""

import pytest
from soak import RULES, Soak

from nodetriage.controller.policy.verify import replay


@pytest.mark.parametrize("seed", [1, 2])
def test_in_a_week_of_fleet_events_the_faulty_are_drained_and_nobody_else_is(seed: int) -> None:
    week = Soak(nodes=400, days=6, seed=seed, interleavings=200).run()
    own = week.figures

    assert own.broken_rules == []
    assert own.not_acted_on == own.fleet_event_drains == own.healthy_drains == 0
    assert own.operator_drains_touched == own.requeued_twice == 0
    assert own.most_drains_in_an_hour <= RULES.drain_limits.max_drains_per_hour
    # All of it took place.
    assert own.acted_on > 0
    assert own.kills > 40
    assert own.fleet_event_nodes > 300
    assert own.operator_drains > 100
    assert own.flapping_is_lemon
    assert own.flapping_drains == RULES.lemon.max_removals
    assert replay.run(week.history).actions == week.decided
