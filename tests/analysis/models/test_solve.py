"""What is solved for really reaches the target, and what cannot be reached is said."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nodetriage.analysis.models import ettr, solve
from nodetriage.analysis.models.figure import Figure, OutOfDomain

nodes = st.floats(1, 1e5)
rates = st.floats(0.01, 100)
targets = st.floats(0.05, 0.99)


@given(nodes, rates, st.floats(0, 20), targets)
def test_the_write_time_found_reaches_the_target_exactly(n: float, rf: float, restart: float, target: float) -> None:
    found = solve.write_needed_min(n, rf, restart, target)
    if isinstance(found, solve.Unreachable):
        assert found.best_ettr <= target + 1e-9
        return
    assume(1e-9 < found.value < 1e9)
    assert ettr.equation_2_at_best(n, rf, restart, found.value).value == pytest.approx(target, abs=1e-6)


@given(nodes, st.floats(0.1, 20), st.floats(0.1, 60), targets)
def test_the_rate_found_reaches_the_target_exactly(n: float, restart: float, write: float, target: float) -> None:
    found = solve.rate_needed_per_1000_node_days(n, restart, write, target)
    assert isinstance(found, Figure)
    assert ettr.equation_2_at_best(n, found.value, restart, write).value == pytest.approx(target, abs=1e-9)


def test_what_restarts_alone_spoil_is_unreachable() -> None:
    found = solve.write_needed_min(1536, 6.5, 5, 0.99)
    assert isinstance(found, solve.Unreachable)
    assert "unreachable: ETTR 0.99 was asked, 0.9653 is the most" in found.line()


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0, math.nan])
def test_a_target_that_is_no_share_is_refused(target: float) -> None:
    with pytest.raises(OutOfDomain, match="between 0 and 1"):
        solve.write_needed_min(1536, 6.5, 5, target)


def test_sensitivity_covers_restarts_of_1_to_20_minutes_and_writes_of_10_s_to_10_min() -> None:
    rows = solve.sensitivity(1024, [6.5])
    assert {r.restart_min for r in rows} == {1, 2, 5, 10, 20}
    assert {round(r.checkpoint_write_min * 60) for r in rows} == {10, 30, 60, 120, 300, 600}
    middle = next(r for r in rows if (r.restart_min, r.checkpoint_write_min) == (5, 5))
    assert middle.ettr == pytest.approx(0.78500646)


def test_sensitivity_leaves_out_what_the_equation_cannot_say() -> None:
    assert any(r.ettr is None for r in solve.sensitivity(1e5, [6.5]))


def test_the_contour_at_12288_gpus_passes_through_the_oracles() -> None:
    points = solve.contour(rates_per_1000_node_days=(0.9375, 6.5))
    at = {(p.target, p.rf_per_1000_node_days): p.checkpoint_write_min for p in points}
    assert at[0.9, 0.9375] == pytest.approx(5.0)
    assert at[0.9, 6.5] == pytest.approx(20.464522 / 60)
    assert at[0.99, 6.5] is None


def long_run(n: float, rf: float, restart: float, write: float) -> float:
    """The best ETTR of an endless run over many intervals, by the exact form of a single segment."""
    rate = n * rf / 1000 / 1440
    tried = (math.exp(i / 200) * max(write, 1e-3) for i in range(-1200, 3000))
    return max(t * rate / (math.exp(rate * restart) * math.expm1(rate * (t + write))) for t in tried if rate * t < 50)


def test_the_exact_form_reaches_what_the_linear_one_calls_unreachable() -> None:
    found = solve.exact_write_needed_min(12_500, 6.5, 5, 0.74)
    assert isinstance(found, Figure)
    assert long_run(12_500, 6.5, 5, found.value) == pytest.approx(0.74, abs=1e-4)
    limit = solve.exact_write_needed_min(12_500, 6.5, 5, 0.76)
    assert isinstance(limit, solve.Unreachable)
    assert limit.best_ettr == pytest.approx(0.754, abs=5e-4)


@given(st.floats(16, 2e4), st.floats(1, 10), st.floats(0, 20), st.floats(0.3, 0.95))
def test_the_exact_write_leaves_exactly_the_target(n: float, rf: float, restart: float, target: float) -> None:
    found = solve.exact_write_needed_min(n, rf, restart, target)
    if isinstance(found, Figure):
        assume(1e-2 < found.value < 1e4)
        assert long_run(n, rf, restart, found.value) == pytest.approx(target, abs=1e-3)
    else:
        assert found.best_ettr <= target
