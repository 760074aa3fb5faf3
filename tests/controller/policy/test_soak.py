"""A few bad days of a small fleet: the whole month of a large one is bench/chaos.py."""

import pytest
from soak import RULES, Upheaval

from nodetriage.controller.policy import replay


@pytest.mark.parametrize("seed", [1, 2])
def test_in_a_week_of_upheavals_the_sick_are_drained_and_nobody_else_is(seed: int) -> None:
    week = Upheaval(nodes=400, days=6, seed=seed, interleavings=200).run()
    own = week.figures

    assert own.broken_rules == []
    assert own.not_acted_on == own.upheaval_drains == own.healthy_drains == 0
    assert own.operator_drains_touched == own.requeued_twice == 0
    assert own.most_drains_in_an_hour <= RULES.drain_limits.max_drains_per_hour
    # All of it took place.
    assert own.acted_on > 0
    assert own.kills > 40
    assert own.upheaval_nodes > 300
    assert own.operator_drains > 100
    assert own.flapping_is_lemon
    assert own.flapping_drains == RULES.lemon.max_removals
    assert replay.run(week.history).actions == week.decided
