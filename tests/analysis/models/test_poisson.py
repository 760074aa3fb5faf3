"""The 90 % interval covers, bounds and widens. Bursts are noticed, and a Poisson process is not taken for one."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from nodetriage.analysis import simulate
from nodetriage.analysis.history import rates
from nodetriage.analysis.models import burst, poisson
from nodetriage.analysis.models.figure import OutOfDomain


def test_the_interval_covers_the_planted_rate_in_nine_of_ten_simulated_months() -> None:
    months = simulated_months(seed=20)
    assert months.height == 2000
    assert 5 < months["failures"].mean() < 30
    covered = 0
    for failures, node_days in months.select("failures", "node_days").iter_rows():
        rate = poisson.rate("r_f", failures, node_days / 1000, rates.PER_1000)
        covered += (rate.low or 0) <= 6.5 <= (rate.high or 0)
    assert covered >= 1800


def simulated_months(seed: int) -> pl.DataFrame:
    """Failures and node-days of 2,000 months, each of two jobs' places of 60 nodes over four weeks."""
    fleet = simulate.Fleet(
        nodes=12_000,
        days=28 * 20,
        jobs=400_000,
        lemon_share=0,
        rack_events_per_1000_rack_days=0,
        noise_per_1000_node_days=0,
        mix=(simulate.Size(480, 1.0, 1.0),),
    )
    made = simulate.fleet(seed, fleet)
    hit = made.truth.failures.filter(pl.col("cause") == "infrastructure").select("job_id", "attempt", hit=True)
    end = pl.col("end_at").fill_null(fleet.start + timedelta(days=fleet.days))
    week = (pl.col("start_at") - fleet.start).dt.total_days() // 7
    return (
        made.jobs.join(hit, on=["job_id", "attempt"], how="left")
        .with_columns(week=week, node_days=(end - pl.col("start_at")).dt.total_microseconds() / 86_400e6 * 60)
        .with_columns(place=pl.col("nodes").list.first().rank("dense").over("week"))
        .group_by(pl.col("week") // 4, (pl.col("place") - 1) // 2)
        .agg(pl.col("hit").sum().alias("failures"), pl.col("node_days").sum())
    )


@pytest.mark.parametrize("mean", [0.2, 1.0, 3.0, 10.0, 40.0])
def test_the_interval_covers_the_mean_whatever_its_size(mean: float) -> None:
    counts = np.random.default_rng(8).poisson(mean, size=2000)
    bounds = {int(k): poisson.event_interval(int(k)) for k in np.unique(counts)}
    assert sum(bounds[int(k)][0] <= mean <= bounds[int(k)][1] for k in counts) >= 1800


def test_no_failure_bounds_from_one_side_only() -> None:
    mean = poisson.mean_time("job-level MTTF", 0, 100.0, "h")
    assert mean.value == float("inf")
    assert mean.low == pytest.approx(100 / 2.995732)  # -ln 0.05
    assert mean.high == float("inf")
    assert mean.row()["value"] is None
    assert "a bound only" in mean.notes[1]
    rate = poisson.rate("r_f", 0, 100.0, "per day")
    assert (rate.value, rate.low) == (0, 0)
    assert rate.high == pytest.approx(2.995732 / 100)


def test_nothing_that_ran_gives_no_number() -> None:
    assert poisson.rate("r_f", 0, 0.0, "per day").row()["value"] is None
    assert poisson.mean_time("MTTF", 3, 0.0, "h").low is None


def test_bursts_widen_the_interval_on_both_sides() -> None:
    low, high = poisson.event_interval(40)
    wide_low, wide_high = poisson.event_interval(40, dispersion=4.0)
    assert wide_low < low < 40 < high < wide_high
    assert (wide_high - wide_low) == pytest.approx(2 * (high - low), rel=0.1)
    assert poisson.event_interval(40, dispersion=0.5) == (low, high)


@pytest.mark.parametrize(("events", "level", "dispersion"), [(-1, 0.9, 1), (1, 1.0, 1), (1, 0.9, 0), (1, 0.9, -2)])
def test_an_interval_of_nonsense_is_refused(events: int, level: float, dispersion: float) -> None:
    with pytest.raises(OutOfDomain):
        poisson.event_interval(events, level, dispersion)


def test_failures_that_come_in_bursts_are_noticed() -> None:
    rng = np.random.default_rng(5)
    centres = rng.uniform(0, 300, size=30)
    times = (centres[:, None] + rng.exponential(0.05, size=(30, 5))).ravel()
    found = burst.test(times, np.ones(301))
    assert found.bursty
    assert found.cv is not None
    assert found.cv > 1.5
    assert found.widening > 2


def test_a_poisson_process_is_called_bursty_once_in_a_hundred() -> None:
    rng = np.random.default_rng(6)
    flagged = sum(burst.test(rng.uniform(0, 300, size=120), np.ones(300)).bursty for _ in range(500))
    assert flagged <= 15


def test_a_fleet_that_grew_is_no_burst() -> None:
    rng = np.random.default_rng(7)
    exposure = np.concatenate([np.full(150, 1.0), np.full(150, 9.0)])
    days = rng.choice(300, size=400, p=exposure / exposure.sum())
    assert not burst.test(days + rng.uniform(size=400), exposure).bursty
    assert burst.test(days + rng.uniform(size=400), np.ones(300)).bursty


def test_too_few_events_decide_nothing() -> None:
    found = burst.test(np.array([1.0, 2.0]), np.ones(10))
    assert (found.cv, found.p_value, found.bursty, found.widening) == (None, None, False, 1.0)
    assert burst.interarrival_cv(np.array([1.0, 1.0, 1.0])) == float("inf")
