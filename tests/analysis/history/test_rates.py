"""Measured rates: what counts, what runs, and that a planted rate comes out again."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis import simulate
from nodetriage.analysis.history import exposure, placement, rates, rates_over_time
from nodetriage.analysis.history.exposure import Window
from nodetriage.analysis.models import mttf, poisson

BEGIN = datetime(2025, 3, 1, tzinfo=UTC)
LATER = datetime(2025, 12, 1, tzinfo=UTC)
FAILED = pl.col("state") == "NODE_FAIL"
HIT = pl.col("hit").fill_null(False)
Row = tuple[int, float, str, float | None]


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def table(*rows: Row, nodes: Sequence[str] = ()) -> pl.DataFrame:
    """(gpus, start hour, state, run hours or None where it still runs)."""
    time = pl.Datetime("us", "UTC")
    starts = [BEGIN + hours(r[1]) for r in rows]
    return pl.DataFrame(
        {
            "gpus": [r[0] for r in rows],
            "node_count": [-(-r[0] // 8) for r in rows],
            "state": [r[2] for r in rows],
            "start_at": starts,
            "end_at": [None if r[3] is None else s + hours(r[3]) for s, r in zip(starts, rows, strict=True)],
            "nodes": [list(nodes)] * len(rows),
        },
        schema={
            "gpus": pl.Int32,
            "node_count": pl.Int32,
            "state": pl.String,
            "start_at": time,
            "end_at": time,
            "nodes": pl.List(pl.String),
        },
    )


def days(count: float) -> Window:
    return Window(BEGIN, BEGIN + timedelta(days=count))


@pytest.fixture(scope="module")
def planted() -> simulate.Simulated:
    return simulate.fleet(3, simulate.Fleet(nodes=600, days=200, jobs=60_000, lemon_share=0))


def hit_jobs(made: simulate.Simulated) -> pl.DataFrame:
    hit = made.truth.failures.filter(pl.col("cause") == "infrastructure")
    return made.jobs.join(hit.select("job_id", "attempt", "category", hit=True), on=["job_id", "attempt"], how="left")


def planted_window(jobs: pl.DataFrame) -> Window:
    return exposure.whole(jobs.filter(pl.col("end_at").is_not_null()), LATER)


def test_the_planted_rate_is_measured_within_its_interval(planted: simulate.Simulated) -> None:
    jobs = hit_jobs(planted)
    found = rates.fleet_rate(jobs, planted_window(jobs), HIT)
    assert found.failures > 300
    assert found.rf.low is not None
    assert found.rf.high is not None
    assert found.rf.low <= 6.5 <= found.rf.high
    assert not found.burst.bursty
    assert found.largest_nodes == 256


def test_one_rate_for_all_sizes_raises_no_alarm_where_it_was_planted(planted: simulate.Simulated) -> None:
    jobs = hit_jobs(planted)
    large = tuple(b for b in rates.by_size(jobs, planted_window(jobs), HIT) if b.gpus_from > 128)
    assert len(large) >= 3
    assert len(rates.misfits(large, 6.5)) <= 1


def test_the_published_mttf_at_1024_gpus_does_not_fit_the_published_rate() -> None:
    fifty = [(1024, 7.9 * i, "NODE_FAIL", 7.9) for i in range(50)]
    (alarm,) = rates.misfits(rates.by_size(table(*fifty), days(30), FAILED), 6.5)
    assert alarm.model_mttf_h == pytest.approx(28.846, rel=1e-4)
    assert "513-1024 GPUs: the model's MTTF of 28.8 h is longer than measured" in alarm.text


def test_job_and_node_level_means_have_different_names_and_units() -> None:
    (bucket,) = rates.by_size(table((1024, 0, "NODE_FAIL", 12)), days(1), FAILED)
    assert (bucket.job_mttf.value, bucket.job_mttf.unit) == (12, "h")
    assert (bucket.node_mttf.value, bucket.node_mttf.unit) == (64, "node-days")
    assert {bucket.job_mttf.name, bucket.node_mttf.name} == {"job-level MTTF", "node-level MTTF"}
    assert bucket.mean_nodes == 128


@given(st.integers(1, 1 << 20))
def test_buckets_are_powers_of_two_closed_on_the_right(gpus: int) -> None:
    low, high = rates.bucket(gpus)
    assert low <= gpus <= high
    assert high & (high - 1) == 0
    assert (low, high) == (1, 1) or low == high // 2 + 1


def test_a_running_job_counts_as_time_and_not_as_failure() -> None:
    (bucket,) = rates.by_size(table((256, 0, "RUNNING", None)), days(2), FAILED)
    assert (bucket.run_h, bucket.failures) == (48, 0)


def test_only_what_lies_in_the_window_counts() -> None:
    jobs = table((256, -10, "NODE_FAIL", 5), (256, -4, "COMPLETED", 8), (256, 20, "NODE_FAIL", 24))
    (bucket,) = rates.by_size(jobs, days(1), FAILED)
    assert bucket.run_h == pytest.approx(4 + 4)
    assert (bucket.runs, bucket.failures) == (2, 0)  # the first was over, the last fails tomorrow


def test_rows_that_cannot_be_counted_are_left_out() -> None:
    jobs = table((256, 5, "COMPLETED", 1), (256, 9, "NODE_FAIL", -3))
    jobs = pl.concat(
        [jobs, table((256, 0, "PENDING", None)).with_columns(start_at=pl.lit(None).cast(jobs.schema["end_at"]))]
    )
    (bucket,) = rates.by_size(jobs, days(1), FAILED)
    assert (bucket.runs, bucket.run_h, bucket.failures) == (1, 1, 0)


def test_an_empty_history_has_no_buckets_and_no_rate() -> None:
    empty = table()
    window = exposure.whole(empty, BEGIN)
    assert window.days == 0
    assert rates.by_size(empty, window, FAILED) == ()
    found = rates.fleet_rate(empty, window, FAILED)
    assert found.rf.row()["value"] is None
    assert rates_over_time.rolling(empty, window, FAILED, pl.col("state")).height == 0
    assert rates_over_time.by_category(empty, window, FAILED, pl.col("state")).height == 0
    assert placement.node_days(empty, window).height == 0


def test_nodes_are_taken_from_the_list_or_the_gpus_where_the_count_is_missing() -> None:
    jobs = table((64, 0, "COMPLETED", 1), nodes=["a", "b"]).with_columns(node_count=pl.lit(None, dtype=pl.Int32))
    assert jobs.select(exposure.node_count()).item() == 2
    assert jobs.with_columns(nodes=pl.lit([], dtype=pl.List(pl.String))).select(exposure.node_count()).item() == 8


@given(st.lists(st.tuples(st.floats(-80, 200), st.floats(0, 300), st.integers(1, 64)), max_size=12))
def test_node_days_by_day_add_up_to_node_days_by_run(rows: list[tuple[float, float, int]]) -> None:
    jobs = table(*[(nodes * 8, start, "COMPLETED", length) for start, length, nodes in rows])
    window = days(5.5)
    daily = exposure.daily_node_days(jobs, window)
    by_run = exposure.runs(jobs, window, FAILED)
    assert daily.size == 6
    assert daily.min(initial=0) >= -1e-6
    assert daily.sum() == pytest.approx((by_run["run_h"] * by_run["node_count"]).sum() / 24, abs=1e-6)


def test_three_units_convert_exactly() -> None:
    assert rates.per_1000_node_days(1e-6) == pytest.approx(0.192, rel=1e-12)
    assert rates.per_gpu_hour(rates.per_1000_node_days(4.2e-5, 4), 4) == pytest.approx(4.2e-5, rel=1e-12)


def test_causes_are_counted_in_three_units() -> None:
    jobs = table((256, 0, "NODE_FAIL", 12), (256, 0, "NODE_FAIL", 12), (256, 0, "COMPLETED", 24)).with_columns(
        category=pl.Series(["ib_link", None, None])
    )
    found = rates_over_time.by_category(jobs, days(1), FAILED, pl.col("category"))
    assert found["category"].to_list() == ["ib_link", "unattributed"]
    row = found.row(0, named=True)
    assert row["per_1000_node_days"] == pytest.approx(1000 / 64)
    assert row["per_gpu_hour"] == pytest.approx(rates.per_gpu_hour(row["per_1000_node_days"]))
    assert row["per_job"] == pytest.approx(1 / 3)
    assert row["low_per_1000_node_days"] < row["per_1000_node_days"] < row["high_per_1000_node_days"]


def test_three_units_of_one_rate_agree_where_jobs_share_nodes() -> None:
    """Eight jobs of one GPU on one node for a day are one node-day, not eight."""
    shared = [(1, 0, "COMPLETED", 24) for _ in range(7)] + [(1, 0, "NODE_FAIL", 24)]
    whole = [(256, 0, "COMPLETED", 24)]
    found = rates_over_time.by_category(table(*shared, *whole), days(2), FAILED, pl.col("state")).row(0, named=True)
    assert found["per_1000_node_days"] == pytest.approx(1000 / 33)
    assert found["per_gpu_hour"] == pytest.approx(rates.per_gpu_hour(found["per_1000_node_days"]))
    fours = rates_over_time.by_category(table(*shared, *whole), days(2), FAILED, pl.col("state"), 4).row(0, named=True)
    assert fours["per_1000_node_days"] == pytest.approx(1000 / 66)


def test_rolling_rates_follow_a_step_within_their_window() -> None:
    calm = [(256, 24.0 * d, "COMPLETED", 24.0) for d in range(60)]
    bad = [(256, 24.0 * (60 + d), "NODE_FAIL", 24.0) for d in range(60)]
    found = rates_over_time.rolling(table(*calm, *bad), days(121), FAILED, pl.lit("ib_link"))
    rate = found["per_1000_node_days"].to_numpy()
    assert found["day"].to_list()[0] == (BEGIN + timedelta(days=29)).date()
    assert found.height == 92
    assert rate[:31].max() == 0
    assert np.all(np.diff(rate[31:60]) > 0)
    assert rate[61] == pytest.approx(1000 / 32, rel=0.05)


def test_every_cause_has_every_day_so_that_a_stack_is_the_total() -> None:
    jobs = table(*[(256, 24.0 * d, "NODE_FAIL", 20.0) for d in range(40)]).with_columns(
        category=pl.Series(["a", "b"] * 20)
    )
    found = rates_over_time.rolling(jobs, days(40), FAILED, pl.col("category"))
    total = rates_over_time.rolling(jobs, days(40), FAILED, pl.lit("all"))
    assert found.height == 2 * total.height
    stacked = found.group_by("day", maintain_order=True).agg(pl.col("failures").sum())
    assert stacked["failures"].to_list() == total["failures"].to_list()


def test_the_day_on_which_a_check_came_is_annotated() -> None:
    at = [BEGIN + timedelta(days=d) for d in (0, 40, 41)]
    events = pl.DataFrame(
        {"at": at, "check": ["ib_link", "mounts", "mounts"], "fault": ["ib_link_down", "mount_stale", "mount_stale"]}
    ).with_columns(pl.col("at").cast(pl.Datetime("us", "UTC")))
    found = rates_over_time.check_annotations(events, days(60))
    assert found["text"].to_list() == ["check mounts first seen", "fault mount_stale first seen"]
    assert found["day"].unique().to_list() == [at[1].date()]


def test_published_clusters_stand_beside_ones_own() -> None:
    own = poisson.rate("r_f", 419, 110.592, rates.PER_1000)
    found = {c.cluster: c for c in rates.compare(own)}
    assert set(found) == set(mttf.PUBLISHED)
    assert found["RSC-1"].ratio == pytest.approx(3.7887 / 6.5, rel=1e-3)
    assert found["RSC-1"].differs
    assert not found["Llama 3 405B"].differs


def test_a_bad_rack_stands_out_among_all_and_nothing_else_does(planted: simulate.Simulated) -> None:
    jobs = planted.jobs
    spent = placement.node_days(jobs, planted_window(jobs))
    alone = planted.truth.failures.filter((pl.col("cause") == "infrastructure") & pl.col("rack_event").is_null())
    alone = alone.unique(["node", "at"])  # a fault that hits several jobs of a node is one
    victims = planted.truth.nodes.filter(pl.col("rack") == "rack0007")["node"]
    worse = pl.concat([alone.select("node"), pl.DataFrame({"node": victims.sample(60, with_replacement=True, seed=1)})])
    found = placement.by_group(worse, spent, planted.truth.nodes, "rack")
    assert found["group"][0] == "rack0007"
    assert found.filter(pl.col("q_value") < 0.01)["group"].to_list() == ["rack0007"]
    assert found["failures"].sum() == worse.height
    by_switch = placement.by_group(worse, spent, planted.truth.nodes, "switch")
    assert by_switch["node_days"].sum() == pytest.approx(spent["node_days"].sum())


def test_nodes_that_no_plan_of_the_site_knows_are_a_group_of_their_own() -> None:
    spent = pl.DataFrame({"node": ["a", "b"], "node_days": [1.0, 2.0]})
    plan = pl.DataFrame({"node": ["a"], "rack": ["r1"]})
    found = placement.by_group(pl.DataFrame({"node": ["b"]}), spent, plan, "rack")
    assert sorted(found["group"].to_list()) == ["r1", "unknown"]
