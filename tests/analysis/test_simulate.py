"""The simulator: what it plants is there, and nothing impossible is in its tables."""

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from nodetriage.analysis import simulate
from nodetriage.analysis.simulate.planted import KINDS, NOISE, SECOND_SIGHT, USER_XID, lemon_hazard_ratio
from nodetriage.analysis.tables import EVENTS, JOBS, sound_events, sound_jobs
from nodetriage.checks.model.faults import faults

SETTINGS = simulate.Fleet(nodes=400, days=60, jobs=60_000)


@pytest.fixture(scope="module")
def made() -> simulate.Simulated:
    return simulate.fleet(11, SETTINGS)


def hit(made: simulate.Simulated) -> pl.DataFrame:
    return made.truth.failures.filter(pl.col("cause") == "infrastructure")


def test_the_tables_have_the_columns_of_the_reports(made: simulate.Simulated) -> None:
    assert made.jobs.schema == dict(JOBS)
    assert made.events.schema == dict(EVENTS)


def test_every_row_is_sound(made: simulate.Simulated) -> None:
    now = SETTINGS.start + timedelta(days=SETTINGS.days + 30)
    jobs, events = sound_jobs(made.jobs, now), sound_events(made.events, now)
    assert dict(jobs.problems.left_out) == {}
    assert dict(jobs.problems.kept) == {}
    assert dict(events.problems.left_out) == {}


def test_one_seed_gives_one_history_and_another_seed_another(made: simulate.Simulated) -> None:
    again, other = simulate.fleet(11, SETTINGS), simulate.fleet(12, SETTINGS)
    assert again.jobs.equals(made.jobs)
    assert again.events.equals(made.events)
    assert again.truth.failures.equals(made.truth.failures)
    assert not other.truth.failures.equals(made.truth.failures)


def test_weeks_written_one_by_one_are_the_whole(made: simulate.Simulated) -> None:
    weeks = [w.jobs for w in simulate.epochs(11, SETTINGS)]
    assert len(weeks) == 9
    assert sum(w.height for w in weeks) == made.jobs.height
    assert pl.concat(weeks).sort("start_at", maintain_order=True).equals(made.jobs)


def test_most_jobs_are_small_and_most_gpu_time_is_not() -> None:
    jobs = simulate.fleet(2, simulate.Fleet(nodes=2000, days=35, jobs=400_000)).jobs.filter(
        pl.col("end_at").is_not_null()
    )
    hours = (pl.col("end_at") - pl.col("start_at")).dt.total_microseconds() / 3.6e9 * pl.col("gpus")
    spent = jobs.with_columns(gpu_h=hours)
    small, large = spent.filter(pl.col("gpus") < 8), spent.filter(pl.col("gpus") >= 256)
    assert small.height > 0.9 * jobs.height
    assert small["gpu_h"].sum() < 0.1 * spent["gpu_h"].sum()
    assert large["gpu_h"].sum() > 0.55 * spent["gpu_h"].sum()
    assert spent.filter(pl.col("gpus") == 1).height > 0.4 * jobs.height


def test_every_infrastructure_failure_ends_a_job_on_the_node_at_fault(made: simulate.Simulated) -> None:
    joined = hit(made).join(made.jobs, on=["job_id", "attempt"], how="left")
    assert joined["end_at"].null_count() == 0
    assert (joined["at"] == joined["end_at"]).all()
    assert joined.select(pl.col("nodes").list.contains(pl.col("node")).all()).item()
    assert set(joined["state"]) == {"FAILED", "NODE_FAIL"}


def test_no_node_carries_more_gpus_than_it_has(made: simulate.Simulated) -> None:
    per_node = pl.col("gpus") / pl.col("node_count")
    parts = made.jobs.filter(pl.col("end_at").is_not_null()).with_columns(per_node=per_node).explode("nodes")
    steps = pl.concat(
        [
            parts.select("nodes", pl.col("start_at").alias("at"), pl.col("per_node").alias("step"), order=1),
            parts.select("nodes", pl.col("end_at").alias("at"), (-pl.col("per_node")).alias("step"), order=0),
        ]
    ).sort("nodes", "at", "order")
    assert steps.select(pl.col("step").cum_sum().over("nodes").max()).item() <= 8


def test_seen_faults_have_evidence_in_time_silent_ones_none_and_late_ones_too_late(made: simulate.Simulated) -> None:
    serious = made.events.filter(
        (pl.col("severity") >= 3) & (pl.col("kind") == "raised") & (pl.col("component") != "/datasets")
    )
    near = hit(made).sort("at").join_asof(
        serious.select(pl.col("at").alias("seen_at"), "node").sort("seen_at"),
        left_on="at", right_on="seen_at", by="node", strategy="nearest", tolerance=timedelta(minutes=5, seconds=1),
    )  # fmt: skip
    found = near.group_by("evidence").agg(pl.col("seen_at").is_not_null().mean().alias("share"))
    share = dict(found.iter_rows())
    assert share["seen"] == 1
    assert share["silent"] < 0.2  # a lemon's next fault may come within minutes
    assert share.get("late", 0) < 0.5


def test_lemons_fail_as_much_more_often_as_planted() -> None:
    made = simulate.fleet(4, simulate.Fleet(nodes=2000, days=70, jobs=50_000))
    nodes = made.truth.nodes
    assert nodes["lemon"].sum() == 24
    assert nodes["hazard_per_1000_node_days"].mean() == pytest.approx(6.5)
    by_kind = dict(nodes.group_by("lemon").agg(pl.col("hazard_per_1000_node_days").first()).iter_rows())
    assert by_kind[True] / by_kind[False] == pytest.approx(lemon_hazard_ratio(0.14, 0.04, 0.012))
    raised = made.events.filter(
        (pl.col("kind") == "raised") & (pl.col("severity") == 4) & (pl.col("component") != "/datasets")
    )
    counted = raised.join(nodes, on="node").group_by("lemon").len()
    share = counted.filter("lemon")["len"].item() / counted["len"].sum()
    assert 0.6 < share < 0.8  # 0.729 by the planted hazards


def test_a_rack_event_takes_several_nodes_of_one_rack_at_one_moment() -> None:
    settings = simulate.Fleet(
        nodes=400, days=60, jobs=60_000, rf_per_1000_node_days=0, rack_events_per_1000_rack_days=20
    )
    failures = hit(simulate.fleet(5, settings))
    assert failures["rack_event"].null_count() == 0
    racks = failures.with_columns(rack=pl.col("node").str.slice(4).cast(pl.Int64) // settings.nodes_per_rack)
    per_event = racks.group_by("rack_event").agg(
        pl.col("rack").n_unique(), pl.col("at").n_unique(), pl.col("node").n_unique(), pl.col("category").unique()
    )
    assert (per_event["rack"] == 1).all()
    assert (per_event["at"] == 1).all()
    assert per_event["node"].max() > 5
    assert set(per_event["category"].explode()) <= {"node_lost", "ib_link"}


def test_users_failures_print_application_xids_only(made: simulate.Simulated) -> None:
    users = made.truth.failures.filter(pl.col("cause") == "user")
    assert users.height > 50
    states = users.join(made.jobs, on=["job_id", "attempt"])["state"]
    assert set(states) == {"FAILED"}
    printed = made.events.filter(pl.col("fault") == "gpu_xid_application")
    assert set(printed["xid"]) == {13, 31, 43}
    assert set(printed["severity"]) == {1}


def test_requeued_jobs_push_others_out_and_are_named(made: simulate.Simulated) -> None:
    pushed = made.jobs.filter(pl.col("preempted_by").is_not_null())
    assert pushed.height > 20
    assert set(pushed["state"]) == {"PREEMPTED"}
    pushers = made.jobs.filter(pl.col("gpus") >= 256).select(pl.col("job_id").alias("preempted_by"), "start_at")
    matched = pushed.join(pushers, on="preempted_by").filter(pl.col("end_at") == pl.col("start_at_right"))
    assert matched["job_id"].n_unique() == pushed["job_id"].n_unique()


def test_attempts_of_a_job_follow_one_another(made: simulate.Simulated) -> None:
    runs = made.jobs.sort("job_id", "attempt").with_columns(before=pl.col("end_at").shift(1).over("job_id"))
    again = runs.filter(pl.col("attempt") > 1)
    assert again.height > 50
    assert (again["start_at"] >= again["before"]).all()
    assert (runs.group_by("job_id").agg(pl.col("attempt").max() == pl.len()))["attempt"].all()


def test_every_planted_fault_is_one_of_the_checks_and_as_grave_as_they_say() -> None:
    known = faults()
    for kind in (k for k in (*KINDS, *NOISE, SECOND_SIGHT, USER_XID) if k.check):
        assert known[kind.fault].severity == kind.severity


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"days": 0},
        {"lemon_share": 1.0},
        {"lemon_hazard_ratio": 0.5},
        {"utilisation": 0.0},
        {"rf_per_1000_node_days": -1.0},
        {"mix": (simulate.Size(4096, 1.0, 1.0),), "nodes": 10},
    ],
)
def test_a_fleet_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        simulate.Fleet(**wrong)


def test_one_node_for_one_day_is_a_fleet() -> None:
    made = simulate.fleet(1, simulate.Fleet(nodes=1, days=1, jobs=5))
    assert made.jobs.height > 0
    assert set(made.jobs["gpus"]) <= {1, 2, 4, 8}
