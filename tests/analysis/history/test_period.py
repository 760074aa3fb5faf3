"""One period for all: what ran in it counts for what ran in it, whatever became of it later."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.analysis.history import exposure, history, losses, rates
from nodetriage.analysis.history.study import FAILED, Study
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, empty

DAY_MIN = 1440
JAN = datetime(2025, 1, 1, tzinfo=UTC)
NOW = datetime(2025, 9, 1, tzinfo=UTC)


def job(start_day: float, days: float | None, state: str, nodes: int = 1, **columns: Any) -> dict[str, Any]:
    start = JAN + timedelta(days=start_day)
    row = dict.fromkeys(JOBS) | {
        "job_id": "1", "attempt": 1, "state": state, "submit_at": start, "start_at": start,
        "end_at": None if days is None else start + timedelta(days=days),
        "nodes": [f"n{i}" for i in range(nodes)], "node_count": nodes, "gpus": 8 * nodes,
    }  # fmt: skip
    return row | columns


def study(*rows: dict[str, Any], since: float | None = None, until: float | None = None, events: Any = None) -> Study:
    jobs = pl.DataFrame(list(rows), schema=dict(JOBS), orient="row")
    bounds = [None if d is None else JAN + timedelta(days=d) for d in (since, until)]
    return Study(history.of(jobs, empty(EVENTS) if events is None else events, NOW, *bounds))


def plain_rf(rows: list[dict[str, Any]], since: float, until: float) -> float:
    """Failures over node-days of jobs above 128 GPUs, by loops over plain rows."""
    lo, hi = JAN + timedelta(days=since), JAN + timedelta(days=until)
    time = failures = 0.0
    for row in (r for r in rows if r["gpus"] > 128):
        end = row["end_at"] or hi
        time += max((min(end, hi) - max(row["start_at"], lo)).total_seconds(), 0) / 86_400 * row["node_count"]
        failures += row["state"] == "NODE_FAIL" and lo <= end < hi
    return failures / time * 1000


def test_a_job_that_ran_on_past_the_end_of_the_period_ran_in_it() -> None:
    rows = [job(0, 14, "COMPLETED", 128), job(0, 4, "NODE_FAIL", 32, job_id="2")]
    found = study(*rows, until=9)
    assert found.fleet_rate.rf.value == pytest.approx(0.78, abs=0.005)
    assert found.fleet_rate.rf.value == pytest.approx(plain_rf(rows, 0, 9))
    (row,) = found.history.jobs.filter(job_id="1").to_dicts()
    assert (row["state"], row["end_at"]) == ("RUNNING", None)


def test_a_failure_after_the_period_is_none_of_it() -> None:
    late = study(job(0, 14, "NODE_FAIL", 32), job(0, 4, "COMPLETED", 32, job_id="2"), until=9)
    assert (late.fleet_rate.failures, late.attributed.ends.height) == (0, 0)
    within = study(job(0, 14, "NODE_FAIL", 32), job(0, 4, "COMPLETED", 32, job_id="2"), until=15)
    assert (within.fleet_rate.failures, within.attributed.ends.height) == (1, 1)


attempts = st.lists(
    st.tuples(st.floats(0, 30), st.floats(0.01, 20), st.sampled_from(("COMPLETED", "NODE_FAIL")), st.integers(17, 64)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(attempts, st.floats(0, 14), st.floats(15, 50))
def test_every_period_has_the_rate_that_a_loop_over_its_rows_finds(rows: Any, since: float, until: float) -> None:
    made = [job(start, days, state, n, job_id=str(i)) for i, (start, days, state, n) in enumerate(rows)]
    found = study(*made, since=since, until=until)
    if found.fleet_rate.node_days > 1e-6:
        assert found.fleet_rate.rf.value == pytest.approx(plain_rf(made, since, until), rel=1e-6)
    total = losses.weeks(found.history, found.attributed, found.linked)["gpu_h"].sum()
    assert total == pytest.approx(sum(r["gpu_h"] for r in history.started(found.history).to_dicts()), abs=1e-5)


def test_the_list_of_jobs_ends_before_the_events_do() -> None:
    rows = [job(0, 5, "NODE_FAIL", 32), job(0, None, "RUNNING", 32, job_id="2")]
    late = pl.DataFrame(
        [{"node": "n0", "at": JAN + timedelta(days=40), "kind": "raised", "fault": "x", "severity": 2}],
        schema=dict(EVENTS),
    )
    found = study(*rows, events=late)
    assert found.history.until == JAN + timedelta(days=5, microseconds=1)
    assert found.fleet_rate.node_days == pytest.approx(2 * 5 * 32)
    # Asked for a longer period, the running job still runs no further than the list knows.
    assert study(*rows, events=late, until=41).fleet_rate.node_days == pytest.approx(2 * 5 * 32)


def test_outages_alone_have_a_period_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("node,at,kind\na,2025-02-01T00:00:00,drained\na,2025-02-03T00:00:00,repaired\n")
    read = history.load(history.Sources(outages=path), NOW)
    assert read.since == datetime(2025, 2, 1, tzinfo=UTC)
    assert read.days == pytest.approx(2)
    assert history.of(empty(JOBS), empty(EVENTS), NOW, outages=empty(OUTAGES)).days == 0


def test_a_final_state_without_an_end_is_no_time_at_all() -> None:
    found = study(job(0, None, "FAILED", 32), job(0, 10, "COMPLETED", 32, job_id="2"))
    assert found.fleet_rate.node_days == pytest.approx(320)
    assert exposure.daily_node_days(found.jobs, found.window).sum() == pytest.approx(320, rel=1e-6)
    running = study(job(0, None, "RUNNING", 32), job(0, 10, "COMPLETED", 32, job_id="2"))
    assert running.fleet_rate.node_days == pytest.approx(640)


def test_verdicts_and_lost_work_count_the_hours_of_the_period_alone() -> None:
    """128 nodes for 15 days, of which the period has 11.25: 276,480 GPU hours, not 368,640."""
    found = study(job(0, 15, "NODE_FAIL", 128), since=3.75)
    assert found.attributed.ends["gpu_h"].item() == pytest.approx(276_480)
    by_size = losses.by_size(found.history, found.attributed, found.linked)
    assert by_size["used_gpu_h"].to_list()[-1] == pytest.approx(276_480)
    (bucket,) = rates.by_size(found.jobs, found.window, FAILED)
    assert bucket.run_h * 1024 == pytest.approx(276_480)
    # The loss at its end follows from the whole run.
    short = study(job(0, 15, "NODE_FAIL", 128), since=15 - 10 / DAY_MIN)
    assert losses.by_size(short.history, short.attributed, short.linked)["direct_gpu_h"].to_list()[-1] == 512


def week_hours(*rows: dict[str, Any]) -> dict[str, dict[str, float]]:
    found = study(*rows)
    weeks = losses.weeks(found.history, found.attributed, found.linked)
    wide = weeks.pivot("bucket", index="week", values="gpu_h").sort("week").to_dicts()
    return {str(row.pop("week")): row for row in wide}


def test_a_run_counts_in_each_week_for_its_hours_in_it() -> None:
    """Monday 6 January is day 5. A week of 300 nodes has 403,200 GPU hours, and no more can be used."""
    rows = [job(5 + i * 2.5, 2.5, "COMPLETED", 300, job_id=str(i)) for i in range(6)]
    weeks = week_hours(*rows)
    used = {week: sum(hours.values()) for week, hours in weeks.items()}
    assert used["2025-01-06"] == pytest.approx(403_200)
    assert used["2025-01-13"] == pytest.approx(403_200)
    assert used["2025-01-20"] == pytest.approx(1 * 300 * 8 * 24)


def test_what_an_end_threw_away_are_the_hours_before_it() -> None:
    """It ends ten minutes into a week: twenty minutes of the loss belong to the week before."""
    weeks = week_hours(job(6, 6 + 10 / DAY_MIN, "NODE_FAIL", 1))
    assert weeks["2025-01-13"]["rework"] == pytest.approx(8 * 10 / 60)
    assert weeks["2025-01-06"]["rework"] == pytest.approx(8 * 20 / 60)


@pytest.mark.parametrize("state", ["TIMEOUT", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED", "PREEMPTED"])
def test_every_end_loses_what_the_same_checkpoints_leave_to_lose(state: str) -> None:
    hours = _total(job(5, 6.9, state, 128))
    bucket = {"NODE_FAIL": "rework", "CANCELLED": "other_ends", "PREEMPTED": "other_ends"}.get(state, "user_failures")
    assert hours[bucket] == pytest.approx(1024 * 0.5)
    assert hours["useful"] > 0.9 * 1024 * 24 * 6.9


def test_a_job_that_completed_lost_nothing() -> None:
    hours = _total(job(5, 6.9, "COMPLETED", 128))
    assert hours["rework"] == hours["user_failures"] == hours["other_ends"] == 0


def _total(*rows: dict[str, Any]) -> dict[str, float]:
    (hours,) = week_hours(*rows).values()
    return hours


def test_shares_are_of_the_cluster_and_the_second_order_is_the_failed_jobs() -> None:
    """A job of 1,024 GPUs fails, returns, and pushes out ten of 8; a job of 8 GPUs fails by itself."""
    big = [job(0, 1, "NODE_FAIL", 128, job_id="big"), job(1, 1, "COMPLETED", 128, job_id="big", attempt=2)]
    small = [job(0, 1, "PREEMPTED", job_id=f"s{i}", preempted_by="big") | {"nodes": [f"p{i}"]} for i in range(10)]
    small.append(job(0, 2, "NODE_FAIL", job_id="alone"))
    found = study(*big, *small)
    rows = {
        r["gpus_class"]: r for r in losses.by_size(found.history, found.attributed, found.linked, 100_000).to_dicts()
    }
    assert (rows["513-1024"]["preempted"], rows["513-1024"]["second_order_gpu_h"]) == (10, 40)
    assert (rows["1-8"]["preempted"], rows["1-8"]["direct_gpu_h"]) == (0, 4)
    used = 2 * 24 * 1024 + 10 * 24 * 8 + 48 * 8
    assert rows["513-1024"]["share_of_gpu_time"] == pytest.approx((512 + 40) / used)
    assert rows["1-8"]["share_of_gpu_time"] == pytest.approx(4 / used)
    assert rows["all"]["share_of_capacity"] == pytest.approx(556 / 100_000)


def test_a_cluster_of_small_jobs_has_the_rate_of_its_own_jobs() -> None:
    """128 GPUs for 30 days, failing every five: the model may not take a rate of nothing for "measured"."""
    rows = [job(i * 5, 5, "NODE_FAIL" if i < 5 else "COMPLETED", 16, attempt=i + 1) for i in range(6)]
    found = study(*rows)
    assert found.fleet_rate.larger_than_gpus == 7
    assert found.fleet_rate.rf.value == pytest.approx(5 / (30 * 16) * 1000)
    assert "not measured above 128 GPUs" in found.fleet_rate.rf.notes[0]
    (predicted,) = found.runs["ettr_model"].to_list()
    assert predicted < 0.92
    larger = study(*rows, job(0, 30, "COMPLETED", 32, job_id="2"))
    assert larger.fleet_rate.larger_than_gpus == 128


def test_where_nothing_ran_nothing_is_predicted() -> None:
    found = study(*(job(i * 5, 5, "NODE_FAIL", 16, attempt=i + 1, gpus=None) for i in range(6)))
    assert found.fleet_rate.rf.row()["value"] is None
    assert found.runs["ettr_model"].to_list() == [None]
