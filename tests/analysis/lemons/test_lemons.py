"""Lemon nodes: the signals, who is flagged and who never is, and how right the list is."""

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from nodetriage.analysis import simulate, tables
from nodetriage.analysis.history import attribution, history
from nodetriage.analysis.history.history import History
from nodetriage.analysis.lemons import detector, score, signals
from nodetriage.analysis.lemons.detector import Judged, Lemons

DAY = 24 * 60


def judge(past: History, settings: Lemons | None = None, until: datetime | None = None) -> Judged:
    facts = signals.facts(past, attribution.attribute(past))
    return detector.judge(facts, until or past.until, settings)


def row(judged: Judged, node: str) -> dict[str, Any]:
    (found,) = judged.nodes.filter(pl.col("node") == node).to_dicts()
    return found


def fleet_at_work(made: Any, nodes: int = 100) -> list[dict[str, Any]]:
    """Every node of a fleet runs one job a day for 28 days."""
    names = [f"n{i}" for i in range(nodes)]
    return [made.job(d * DAY, 20 * 60, "COMPLETED", job_id=f"{n}-{d}", nodes=[n]) for n in names for d in range(28)]


def failed(made: Any, node: str, day: float, **columns: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A single-node job that an off-the-bus GPU ends, and the event."""
    job = made.job(day * DAY, 60, "FAILED", **{"job_id": f"f-{node}-{day}", "nodes": [node], **columns})
    return job, made.event(node, day * DAY + 59, "gpu_off_bus", xid=79)


def test_xid_cnt_counts_codes_and_not_events(made: Any) -> None:
    events = [made.event("n0", i, "gpu_off_bus", xid=x) for i, x in enumerate((79, 79, 79, 31))]
    assert row(judge(made.past([made.job(0, 60, "COMPLETED")], events)), "n0")["xid_cnt"] == 2


def test_the_window_holds_28_days_up_to_its_end(made: Any) -> None:
    jobs = [made.job(0, 60, "COMPLETED"), made.job(28 * DAY, 60, "COMPLETED", job_id="2")]
    events = [
        made.event("n0", m, "gpu_off_bus", xid=x) for m, x in ((0, 1), (0.1, 2), (28 * DAY, 3), (28 * DAY + 1, 4))
    ]
    found = judge(made.past(jobs, events), until=made.at(28 * DAY))
    assert row(found, "n0")["xid_cnt"] == 2


def test_every_signal_counts_what_it_says(made: Any) -> None:
    single, single_event = failed(made, "n0", 1)
    multi = made.job(2 * DAY, 60, "FAILED", job_id="m", nodes=["n0", "n1", "n2"])
    excluding = [made.job(3 * DAY, 5, "COMPLETED", job_id=f"x{i % 2}", attempt=i + 1, start_at=made.at(3 * DAY + i),
                          nodes=["n2"], excluded_nodes=["n0"]) for i in range(3)]  # fmt: skip
    past = made.past(
        [single, multi, *excluding],
        [single_event, made.event("n0", 2 * DAY + 59, "ib_link_down")],
        [{"node": "n0", "at": made.at(DAY), "kind": k, "cause": ""} for k in ("drained", "ticket", "ticket")],
    )
    found = row(judge(past), "n0")
    assert {s: found[s] for s in list(signals.SIGNALS)[:6]} == {
        "excl_jobid_count": 2,
        "xid_cnt": 1,
        "tickets": 2,
        "out_count": 1,
        "multi_node_node_fails": 1,
        "single_node_node_fails": 1,
    }
    assert found["single_node_failure_share"] == 1
    assert found["single_node_failures_per_node_day"] == pytest.approx(24)
    assert row(judge(past), "n1")["multi_node_node_fails"] == 0


def test_a_node_that_many_exclude_is_not_flagged_for_it(made: Any) -> None:
    jobs = fleet_at_work(made)
    jobs += [made.job(DAY, 60, "COMPLETED", job_id=f"x{i}", nodes=["n1"], excluded_nodes=["n0"]) for i in range(50)]
    found = judge(made.past(jobs))
    assert row(found, "n0")["excl_jobid_count"] == 50
    assert "excl_jobid_count" in row(found, "n0")["above"]
    assert found.flagged == []


def test_a_node_that_fails_again_and_again_is_flagged_with_its_reasons(made: Any) -> None:
    failures = [failed(made, "n7", day) for day in range(3, 20, 3)]
    past = made.past([*fleet_at_work(made), *(j for j, _ in failures)], [e for _, e in failures])
    facts = signals.facts(past, attribution.attribute(past))
    found = detector.judge(facts, past.until)
    assert found.flagged == ["n7"]
    text = score.explain(found, facts, "n7")
    assert text.startswith("n7: in the 28 days to")
    assert "6 job failures" in text
    assert "gpu_missing 6" in text
    assert "Recommended: Lemon" in text


def test_one_dead_gpu_that_fails_eight_jobs_at_once_is_one_occasion(made: Any) -> None:
    jobs = [failed(made, "n7", 5, job_id=f"f{i}", gpus=1)[0] for i in range(8)]
    past = made.past([*fleet_at_work(made), *jobs], [failed(made, "n7", 5)[1]])
    found = judge(past)
    assert (row(found, "n7")["single_node_node_fails"], row(found, "n7")["occasions"]) == (8, 1)
    assert found.flagged == []


def test_a_large_job_without_a_culprit_makes_no_node_a_lemon(made: Any) -> None:
    everywhere = [f"n{i}" for i in range(64)]
    jobs = [made.job(d * DAY, 60, "NODE_FAIL", job_id=f"big{d}", nodes=everywhere) for d in range(20)]
    found = judge(made.past([*fleet_at_work(made), *jobs]))
    assert found.nodes["multi_node_node_fails"].sum() == 0
    assert found.flagged == []


def test_of_a_large_jobs_nodes_only_the_one_at_fault_is_counted(made: Any) -> None:
    everywhere = [f"n{i}" for i in range(64)]
    jobs = [made.job(d * DAY, 60, "NODE_FAIL", job_id=f"big{d}", nodes=everywhere) for d in range(5)]
    events = [made.event("n9", d * DAY + 59, "ib_link_down") for d in range(5)]
    found = judge(made.past([*fleet_at_work(made), *jobs], events))
    assert row(found, "n9")["multi_node_node_fails"] == 5
    assert found.nodes["multi_node_node_fails"].sum() == 5
    assert found.flagged == ["n9"]


def test_a_fleet_where_all_fail_alike_has_no_lemon(made: Any) -> None:
    failures = [failed(made, f"n{i}", day) for i in range(50) for day in (4, 11, 18)]
    past = made.past([*fleet_at_work(made, 50), *(j for j, _ in failures)], [e for _, e in failures])
    assert judge(past).flagged == []


def test_thresholds_come_from_the_fleet_and_not_below_the_floor(made: Any) -> None:
    past = made.past(fleet_at_work(made))
    assert judge(past).thresholds["out_count"] == 3
    # Half of the fleet with four codes each: four are nothing special there.
    events = [made.event(f"n{i}", 100 + x, "gpu_xid_warning", xid=x, severity=2) for i in range(50) for x in range(4)]
    assert judge(made.past(fleet_at_work(made), events)).thresholds["xid_cnt"] == 5


def test_rolling_windows_find_a_node_that_was_a_lemon_once(made: Any) -> None:
    failures = [failed(made, "n7", day) for day in range(3, 20, 3)]
    later = [made.job(d * DAY, 60, "COMPLETED", job_id=f"l{d}", nodes=["n7"]) for d in range(40, 90)]
    past = made.past([*fleet_at_work(made), *later, *(j for j, _ in failures)], [e for _, e in failures])
    facts = signals.facts(past, attribution.attribute(past))
    assert detector.judge(facts, past.until).flagged == []
    found = detector.rolling(facts, past.since, past.until)
    assert found["node"].to_list() == ["n7"]
    assert found["first_flagged_at"].to_list() == [past.since.replace(day=30)]


def test_planted_lemons_are_found_and_others_left_alone() -> None:
    total = score.Score(0, 0, 0, 0)
    for seed in (1, 2):
        made_up = simulate.fleet(seed, simulate.Fleet(nodes=500, days=60, jobs=60_000))
        now = datetime(2100, 1, 1, tzinfo=UTC)
        jobs, events = tables.sound_jobs(made_up.jobs, now).frame, tables.sound_events(made_up.events, now).frame
        planted = made_up.truth.nodes.filter("lemon")["node"].to_list()
        one = score.score(judge(history.of(jobs, events, now)).flagged, planted, 500)
        total = score.Score(
            total.flagged + one.flagged, total.lemons + one.lemons, total.right + one.right, total.nodes + one.nodes
        )
    assert (total.precision or 0) >= 0.85
    assert (total.recall or 0) >= 0.75
    assert 0.005 < (total.flagged_share or 0) < 0.02


def test_a_score_without_anything_to_divide_by_is_none() -> None:
    nothing = score.score([], [], 0)
    assert (nothing.precision, nothing.recall, nothing.flagged_share) == (None, None, None)


def test_the_effect_is_told_in_points_and_relative() -> None:
    effect = score.Effect(14, 100, 4, 100)
    assert effect.points == pytest.approx(10)
    assert effect.relative == pytest.approx(0.714286, rel=1e-5)
    assert score.Effect(0, 0, 0, 0).points is None
    assert score.Effect(0, 10, 0, 10).relative is None


def test_only_failures_of_flagged_nodes_alone_would_have_been_spared(made: Any) -> None:
    wide = [f"n{i}" for i in range(64)]
    jobs = [made.job(d * DAY, 60, "NODE_FAIL", job_id=f"b{d}", nodes=wide) for d in range(3)]
    events = [made.event("n1", 59, "ib_link_down"), made.event("n2", DAY + 59, "ib_link_down")]
    past = made.past(jobs, events)
    found = score.without(past, attribution.attribute(past), ["n1"])
    assert (found.before_failed, found.after_failed, found.before) == (3, 2, 3)


def test_an_empty_history_flags_nobody(made: Any) -> None:
    past = made.past([])
    found = judge(past)
    assert found.flagged == []
    assert score.cdf(found).height == 0
    assert score.root_causes(past).height == 0


@pytest.mark.parametrize("wrong", [{"window_days": 0}, {"percentile": 1.0}, {"floors": {"luck": 1.0}}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"window_days|percentile|unknown signal luck"):
        Lemons(**wrong)


def test_a_node_that_runs_eight_jobs_at_once_is_busy_once(made: Any) -> None:
    """n0: eight jobs for a day and one for two days; n1: one job for a day. A loop over minutes finds the same."""
    rows = [made.job(60 * i, 1440, "COMPLETED", job_id=f"a{i}", gpus=1) for i in range(8)]
    rows += [made.job(0, 2880, "COMPLETED", job_id="b", gpus=1)]
    rows += [made.job(0, 1440, "COMPLETED", job_id="c", nodes=["n1"])]
    rows += [made.job(3000, 60, "COMPLETED", job_id="d", nodes=["n0", "n1"])]
    past = made.past(rows)
    facts = signals.facts(past, attribution.attribute(past))
    busy = dict(facts.use.group_by("node").agg(pl.col("node_days").sum()).iter_rows())
    assert busy == pytest.approx({"n0": 2 + 1 / 24, "n1": 1 + 1 / 24})
    alone = dict(facts.use.group_by("node").agg(pl.col("single_days").sum()).iter_rows())
    assert alone == pytest.approx({"n0": 2, "n1": 1})
    assert facts.use["single_jobs"].sum() == 10
