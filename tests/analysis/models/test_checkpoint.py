"""Checkpoint intervals and goodput: the optimum is one, the waste adds up, nonsense is refused."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis.models import checkpoint, goodput
from nodetriage.analysis.models.figure import OutOfDomain

writes = st.floats(1e-3, 1e3)
mtbfs = st.floats(1, 1e6)
anything = st.floats(allow_nan=True, allow_infinity=True)


@given(writes, mtbfs, st.floats(0, 100), st.sampled_from([0.5, 0.9, 1.1, 2.0]))
def test_no_interval_is_better_than_the_exact_optimum(write: float, mtbf: float, restart: float, other: float) -> None:
    best = checkpoint.optimum_min(write, mtbf)
    at_best = goodput.exact_goodput(best, write, mtbf, restart).value
    assert at_best >= goodput.exact_goodput(best * other, write, mtbf, restart).value * (1 - 1e-9)


@given(writes, mtbfs)
def test_the_optimum_solves_the_equation_it_comes_from(write: float, mtbf: float) -> None:
    x = checkpoint.optimum_min(write, mtbf) / mtbf
    # e^{(tau + delta)/M} (1 - tau/M) = 1, with logs so that no digits are lost where tau/M is near 1
    if x < 1 - 1e-12:
        assert x + write / mtbf + math.log1p(-x) == pytest.approx(0, abs=1e-6 * max(1.0, write / mtbf))


@given(writes, mtbfs)
def test_dalys_series_costs_at_most_a_fifth_of_a_percent(write: float, mtbf: float) -> None:
    best = goodput.exact_goodput(checkpoint.optimum_min(write, mtbf), write, mtbf, 0).value
    daly = goodput.exact_goodput(checkpoint.daly_min(write, mtbf), write, mtbf, 0).value
    assert daly >= best * (1 - 0.0019) - 1e-12


def test_a_write_of_twice_the_mtbf_leaves_the_mtbf_as_interval() -> None:
    assert checkpoint.daly_min(400, 186) == 186


def test_advice_says_how_flat_the_optimum_is() -> None:
    advice = checkpoint.advise(5, 186, restart_min=15)
    best = goodput.exact_goodput(advice.optimum.value, 5, 186, 15).value
    for edge in (advice.flat_from, advice.flat_to):
        assert goodput.exact_goodput(edge.value, 5, 186, 15).value == pytest.approx(best - 0.01, abs=1e-6)
    assert advice.flat_from.value < advice.optimum.value < advice.flat_to.value
    assert "goodput 0.7248" in advice.daly.notes[0]


def test_the_three_wastes_add_up_to_what_goodput_lacks() -> None:
    found = goodput.first_order(43.1, 5, 186, 15)
    wastes = found.checkpoint.value + found.rework.value + found.restart.value
    assert found.goodput.value == pytest.approx(1 / (1 + wastes))
    assert [f.unit for f in found.figures()[1:]] == ["of useful time"] * 3


def test_first_order_overstates_and_says_so_when_failures_cost_much() -> None:
    first = goodput.first_order(43.1, 5, 186, 15).goodput
    assert first.value > goodput.exact_goodput(43.1, 5, 186, 15).value
    assert "overstates" in first.notes[0]
    assert goodput.first_order(43.1, 5, 1e5, 15).goodput.notes == ()


def test_restarts_waste_as_much_as_checkpoints_at_the_crossover() -> None:
    mtbf = goodput.crossover_mtbf_min(5, 15)
    at = goodput.first_order(checkpoint.young_min(5, mtbf), 5, mtbf, 15)
    # The two checkpoint terms of Young's optimum together are sqrt(2 delta / M).
    assert at.restart.value == pytest.approx(math.sqrt(2 * 5 / mtbf))


def test_hopeless_goodput_is_zero_not_a_crash() -> None:
    assert goodput.exact_goodput(1e6, 5, 1, 15).value == 0
    with pytest.raises(OutOfDomain, match="no interval makes this run worth while"):
        checkpoint.advise(100, 1, restart_min=100)


@given(anything, anything, anything, anything)
def test_no_input_crashes(one: float, two: float, three: float, four: float) -> None:
    for asked in (
        lambda: checkpoint.young_min(one, two),
        lambda: checkpoint.daly_min(one, two),
        lambda: checkpoint.optimum_min(one, two),
        lambda: goodput.exact_goodput(one, two, three, four).value,
        lambda: goodput.first_order(one, two, three, four).goodput.value,
        lambda: goodput.uptime(one, two, three).value,
        lambda: goodput.usd_per_day(one, two, three).value,
        lambda: checkpoint.advise(one, two, three).optimum.value,
    ):
        with contextlib.suppress(OutOfDomain):
            assert math.isfinite(asked())
