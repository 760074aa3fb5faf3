"""The ETTR models: what they say about each other, where they stop, and what no input may do to them."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis.models import ettr, ettr_trials, interruptions
from nodetriage.analysis.models.figure import OutOfDomain
from nodetriage.analysis.models.interruptions import Run

DAY = 1440.0
SET_B = Run(nodes=1024, rf_per_1000_node_days=6.5, checkpoint_interval_min=45, productive_min=30 * DAY)

anything = st.floats(allow_nan=True, allow_infinity=True)
minutes = st.floats(0, 1000) | anything
runs = st.tuples(
    st.floats(1, 1e5) | anything, st.floats(0, 100) | anything, minutes, minutes, minutes, minutes, minutes
)


def test_equation_1_lies_above_the_truth_here_so_it_is_no_lower_bound() -> None:
    assert ettr.equation_1(SET_B).value > ettr.exact(SET_B).value


def test_the_exact_form_and_the_trials_agree_where_equation_1_is_off_by_five_percent() -> None:
    hard = Run(2000, 6.5, checkpoint_write_min=0, checkpoint_interval_min=60, productive_min=10 * DAY)
    played = ettr_trials.play(hard, runs=20_000, seed=3)
    assert ettr.exact(hard).value == pytest.approx(played.ettr.value, rel=0.0015)
    assert ettr.equation_1(hard).value < played.ettr.value * 0.955
    assert played.interruptions.value == pytest.approx(interruptions.exact(hard).value, rel=0.003)


def test_a_single_run_says_little() -> None:
    assert 0.006 < ettr_trials.play(SET_B, runs=5000).spread.value < 0.010


def test_the_same_seed_plays_the_same_runs() -> None:
    assert ettr_trials.play(SET_B, runs=200, seed=5) == ettr_trials.play(SET_B, runs=200, seed=5)
    assert ettr_trials.play(SET_B, runs=200, seed=5) != ettr_trials.play(SET_B, runs=200, seed=6)


def test_queue_times_cost_what_they_last() -> None:
    waiting = Run(128, 6.5, checkpoint_interval_min=120, queue_min=60, productive_min=14 * DAY)
    played = ettr_trials.play(waiting, runs=20_000, seed=2)
    assert ettr.exact(waiting).value == pytest.approx(played.ettr.value, rel=0.002)


def test_a_long_run_approaches_the_limit_of_an_endless_one() -> None:
    endless = Run(1024, 6.5, checkpoint_interval_min=45, queue_min=3)
    long = Run(1024, 6.5, checkpoint_interval_min=45, queue_min=3, productive_min=1e9)
    assert ettr.exact(long).value == pytest.approx(ettr.exact(endless).value, rel=1e-6)
    assert ettr.equation_1(long).value == pytest.approx(ettr.equation_1(endless).value, rel=1e-6)


def test_without_queue_or_end_equation_1_is_equation_2() -> None:
    run = Run(1024, 6.5, checkpoint_interval_min=45)
    assert ettr.equation_1(run).value == pytest.approx(ettr.equation_2(run).value, rel=1e-12)


def test_a_fleet_without_failures_loses_only_its_checkpoints() -> None:
    run = Run(1024, 0.0, checkpoint_write_min=5, checkpoint_interval_min=45, productive_min=1e7, restart_min=0)
    assert ettr.exact(run).value == pytest.approx(0.9)
    assert interruptions.exact(run).value == 0
    assert ettr_trials.play(run, runs=10).ettr.value == pytest.approx(0.9)


def test_the_linear_equations_warn_when_strained_and_refuse_when_meaningless() -> None:
    strained = Run(4096, 6.5, checkpoint_interval_min=30)
    assert 0.2 < strained.strain < 1
    assert any("use the exact form" in note for note in ettr.equation_2(strained).notes)
    assert ettr.exact(strained).notes == ()
    for linear in (ettr.equation_1, ettr.equation_2, interruptions.linear):
        with pytest.raises(OutOfDomain, match="expected below 1"):
            linear(Run(16384, 6.5, restart_min=15, checkpoint_interval_min=15.25, productive_min=DAY))


def test_a_failure_that_always_costs_the_whole_interval_lowers_ettr() -> None:
    usual, worst = SET_B, Run(1024, 6.5, checkpoint_interval_min=45, productive_min=30 * DAY, rework_share=1.0)
    lost = usual.failures_per_min * 45 / 2
    assert ettr.equation_2(usual).value - ettr.equation_2(worst).value == pytest.approx(lost / (1 + 5 / 45))
    with pytest.raises(OutOfDomain, match=r"expected 0\.5"):
        ettr.exact(worst)


def test_a_run_that_cannot_end_is_refused() -> None:
    with pytest.raises(OutOfDomain, match="never ends"):
        ettr.exact(Run(1e6, 100, restart_min=1e4, productive_min=DAY))
    with pytest.raises(OutOfDomain, match="never ends"):
        ettr.exact(Run(1e6, 100, restart_min=1e4))


def test_trials_that_would_take_hours_are_refused() -> None:
    with pytest.raises(OutOfDomain, match="would take hours"):
        ettr_trials.play(Run(2048, 6.5, productive_min=1e9), runs=20_000)
    with pytest.raises(OutOfDomain, match="runs: expected 2"):
        ettr_trials.play(SET_B, runs=1)


@given(runs)
def test_no_input_crashes_and_no_ratio_leaves_zero_to_one(values: tuple[float, ...]) -> None:
    for figure in (ettr.exact, ettr.equation_1, ettr.equation_2, interruptions.exact, interruptions.linear):
        with contextlib.suppress(OutOfDomain):
            found = figure(Run(*values))
            assert math.isfinite(found.value)
            assert found.value >= 0
            assert found.value <= 1 + 1e-9 or not found.name.startswith("ETTR")
