"""A few bad days of a small fleet: the whole month of a large one is bench/chaos.py."""

import pytest
from soak import RULES, Soak

from nodetriage.controller.policy.verify import replay


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.timeout(900)
def test_in_a_week_of_fleet_events_the_faulty_are_drained_and_nobody_else_is(seed: int) -> None:
    week = Soak(nodes=400, days=6, seed=seed, interleavings=200).run()
    own = week.figures

    assert own.broken_rules == []
    assert own.not_acted_on == own.fleet_event_drains == own.healthy_drains == 0
    assert own.operator_drains_touched == own.requeued_twice == 0
    assert own.most_drains_in_an_hour <= RULES.drain_limits.max_drains_per_hour
    assert own.left_in_silence == own.shared_refusals == 0
    # All of it took place.
    assert own.forged_nodes > 40
    assert own.jobs_started > 10_000
    assert own.resumed_by_a_tool > 3
    assert own.told_or_drained_in_a_minute > 50
    assert own.acted_on > 0
    assert own.kills > 40
    assert own.fleet_event_nodes > 300
    assert own.operator_drains > 100
    assert own.flapping_is_lemon
    assert own.flapping_drains == RULES.lemon.max_removals
    assert replay.run(week.history).actions == week.decided
