"""What comes at intervals comes at the same moments."""

import itertools

import pytest

from nodetriage.agent.core.aligned_timer import PHASE_S, AlignedTimer
from nodetriage.agent.waiting import node_timer


@pytest.mark.parametrize("phase", [0.0, 0.37, 0.999])
@pytest.mark.parametrize("now_s", [0.0, 5.0, 123_456.789])
def test_intervals_that_divide_each_other_fall_together(phase: float, now_s: float) -> None:
    timer = AlignedTimer(phase)
    at_s = now_s + timer.until_next_s(300, now_s)

    assert now_s < at_s <= now_s + 300
    assert timer.until_next_s(60, at_s - 1.0) == pytest.approx(1.0)
    assert timer.until_next_s(5, at_s - 1.0) == pytest.approx(1.0)
    assert timer.until_next_s(300, at_s) == pytest.approx(300)


def test_nodes_are_spread() -> None:
    moments = sorted(node_timer().until_next_s(PHASE_S, 0.0) for _ in range(1000))
    assert max(b - a for a, b in itertools.pairwise(moments)) < PHASE_S / 20
