"""Spares, retention, stragglers: sizes that hold when played out."""

import numpy as np
import pytest

from nodetriage.analysis.models import mttf, retention, spares, straggler
from nodetriage.analysis.models.figure import OutOfDomain


def test_the_spares_found_are_the_fewest_that_suffice() -> None:
    rng = np.random.default_rng(11)
    out = rng.poisson(spares.nodes_out(2048, 3.7887, 1.0), size=400_000)
    found = int(spares.needed(2048, 3.7887, 1.0, 0.99).value)
    assert (out <= found).mean() >= 0.99
    assert (out <= found - 1).mean() < 0.99


def test_a_pool_that_covers_a_repair_time_needs_no_more_than_itself() -> None:
    days = spares.repair_days_covered(52, 2048, 3.7887, 0.99).value
    assert spares.needed(2048, 3.7887, days * 0.999, 0.99).value == 52
    assert spares.needed(2048, 3.7887, days * 1.001, 0.99).value == 53


def test_a_fleet_that_never_fails_needs_no_spare() -> None:
    assert spares.needed(100, 0.0, 1.0, 0.99).value == 0


def test_a_repair_shop_that_cannot_keep_up_is_refused() -> None:
    with pytest.raises(OutOfDomain, match="cannot keep up"):
        spares.needed(100, 1e6, 1e3, 0.99)


def test_kept_copies_reach_back_behind_the_corruption_whenever_it_is_noticed() -> None:
    latency, interval = 90.0, 13.0
    copies = int(retention.copies_guaranteed(latency, interval).value)
    for minutes_since_save in np.linspace(0, interval, 200, endpoint=False):
        oldest = minutes_since_save + (copies - 1) * interval
        assert oldest >= latency
    assert (copies - 2) * interval < latency  # one fewer fails just after a save


def test_a_pool_shared_by_jobs_holds_for_repair_times_of_any_spread() -> None:
    """Two jobs of 1,024 nodes claim from one pool; repairs are lognormal, a few many times longer than most."""
    rng = np.random.default_rng(9)
    days, mean_repair, sigma = 20_000.0, 0.5, 1.5
    count = rng.poisson(2 * 1024 * 3.7887 / 1000 * days)
    start = np.sort(rng.uniform(0, days, size=count))
    end = start + rng.lognormal(np.log(mean_repair) - sigma**2 / 2, sigma, size=count)
    moments = rng.uniform(100, days, size=50_000)
    out = np.searchsorted(start, moments) - np.searchsorted(np.sort(end), moments)
    pool = spares.needed(2 * 1024, 3.7887, mean_repair, 0.99).value
    assert (out <= pool).mean() == pytest.approx(0.99, abs=0.006)
    assert pool < 2 * spares.needed(1024, 3.7887, mean_repair, 0.99).value  # one pool is cheaper than two


def test_a_rollback_goes_to_the_newest_checkpoint_that_is_surely_clean() -> None:
    saved = [3.0 + 13.0 * n for n in range(8)]  # the newest three minutes ago
    found = retention.roll_back(saved, detection_latency_min=90)
    assert found.to_min == 94
    assert found.suspect_min == tuple(saved[:7])
    assert retention.roll_back(saved[:7], detection_latency_min=90).to_min is None
    with pytest.raises(OutOfDomain, match="0 or more"):
        retention.roll_back([-1.0], 90)


def test_the_slowest_of_many_is_as_slow_as_drawn() -> None:
    rng = np.random.default_rng(4)
    drawn = rng.standard_normal((20_000, 64)).max(axis=1).mean()
    assert straggler.expected_maximum_sigmas(64).value == pytest.approx(drawn, abs=0.02)
    assert straggler.asymptotic_maximum_sigmas(64).value > drawn * 1.1
    assert straggler.expected_maximum_sigmas(1).value == pytest.approx(0, abs=1e-9)


def test_a_projection_beyond_what_was_seen_is_marked() -> None:
    assert "extrapolated" in mttf.projection(2048, 6.5, largest_nodes_seen=512).notes[0]
    assert mttf.projection(512, 6.5, largest_nodes_seen=512).notes == ()


@pytest.mark.parametrize(("nodes", "rate"), [(0, 6.5), (-1, 6.5), (10, 0), (float("nan"), 6.5), (10, float("inf"))])
def test_an_mttf_of_nothing_is_refused(nodes: float, rate: float) -> None:
    with pytest.raises(OutOfDomain, match="expected a number above 0"):
        mttf.theory_h(nodes, rate)
