"""Preemptions that failures cause, and the work that they and the failures lose."""

from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.history import attribution, cascades, history, losses
from nodetriage.analysis.history.attribution import Attributed
from nodetriage.analysis.history.cascades import Cascades, Linked
from nodetriage.analysis.history.history import History

BIG = [f"b{i}" for i in range(128)]


def judged(past: History, settings: Cascades | None = None) -> tuple[Attributed, Linked]:
    found = attribution.attribute(past)
    return found, cascades.linked(past, found, settings)


def chain(made: Any, first_end: str = "NODE_FAIL") -> History:
    """`big` ends and comes back over `mid`, which comes back over `small`."""
    return made.past(
        [
            made.job(0, 200, first_end, job_id="big", nodes=BIG),
            made.job(0, 220, "PREEMPTED", job_id="mid", nodes=["m0", "m1"], preempted_by="big"),
            made.job(220, 100, "COMPLETED", job_id="big", attempt=2, nodes=BIG),
            made.job(0, 250, "PREEMPTED", job_id="small", nodes=["s0"], preempted_by="mid"),
            made.job(250, 60, "COMPLETED", job_id="mid", attempt=2, nodes=["m0", "m1"]),
        ]
    )


def test_a_chain_of_three_leads_back_to_the_failure(made: Any) -> None:
    _, found = judged(chain(made))
    rows = {r["job_id"]: (r["root"], r["depth"]) for r in found.links.to_dicts()}
    assert rows == {"mid": ("big", 1), "small": ("big", 2)}


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_preemption_without_a_failure_of_the_fleet_has_no_root(made: Any, end: str) -> None:
    _, found = judged(chain(made, end))
    assert found.links["root"].to_list() == [None, None]


def test_jobs_that_push_out_each_other_end_the_search(made: Any) -> None:
    jobs = []
    for i in range(40):
        one, other = ("a", "b") if i % 2 else ("b", "a")
        jobs.append(made.job(i * 10, 10, "PREEMPTED", job_id=one, attempt=i // 2 + 1, preempted_by=other))
    _, found = judged(made.past(jobs))
    assert found.links.height == 40
    assert found.links["root"].null_count() == 40


def test_the_costliest_cascades_come_first_with_what_they_cost(made: Any) -> None:
    """The documented crash loop: 35 requeues, 548 preemptions, 7,000 GPUs."""
    sizes = [13] * 424 + [12] * 124  # 548 jobs, 7,000 GPUs
    jobs, placed = [], 0
    for attempt in range(1, 37):
        start = attempt * 300
        state = "NODE_FAIL" if attempt < 36 else "COMPLETED"
        jobs.append(made.job(start, 290, state, job_id="loop", attempt=attempt, nodes=BIG))
        share = 548 // 35 + (attempt - 2 < 548 % 35) if attempt > 1 else 0
        for _ in range(share):
            jobs.append(made.job(start - 200, 200, "PREEMPTED", job_id=f"p{placed}", nodes=[f"s{placed}"],
                                 gpus=sizes[placed], preempted_by="loop"))  # fmt: skip
            placed += 1
    jobs.append(made.job(0, 100, "NODE_FAIL", job_id="other", nodes=BIG))
    assert placed == 548
    attributed, found = judged(made.past(jobs))
    (top,) = cascades.top(found, attributed).to_dicts()
    assert (top["job_id"], top["failures"], top["preemptions"], top["gpus_preempted"]) == ("loop", 35, 548, 7000)
    assert top["preemptions_per_failure"] == pytest.approx(15.66, abs=0.01)
    assert top["lost_gpu_h"] == pytest.approx(3500)


def test_a_job_preempted_before_its_time_is_told(made: Any) -> None:
    soon = made.job(0, 119, "PREEMPTED", job_id="soon", preempted_by="x")
    late = made.job(0, 120, "PREEMPTED", job_id="late", preempted_by="x")
    _, found = judged(made.past([soon, late]))
    assert found.links.filter("too_soon")["job_id"].to_list() == ["soon"]


def test_an_unnamed_preemptor_is_who_took_the_nodes_and_is_marked(made: Any) -> None:
    jobs = [
        made.job(0, 200, "PREEMPTED", job_id="small", nodes=["n1"], qos="low"),
        made.job(200.5, 100, "COMPLETED", job_id="big", nodes=["n0", "n1", "n2"], qos="high"),
        made.job(205, 100, "COMPLETED", job_id="later", nodes=["n1"], qos="high"),
    ]
    _, found = judged(made.past(jobs))
    assert found.links.select("preempted_by", "inferred").rows() == [("big", True)]
    _, told = judged(made.past(jobs), Cascades(infer=False))
    assert told.links.select("preempted_by", "inferred").rows() == [(None, False)]


@pytest.mark.parametrize("next_job", [{"qos": "low"}, {"job_id": "small", "attempt": 2, "qos": "high"}])
def test_who_merely_came_next_is_no_preemptor(made: Any, next_job: dict[str, Any]) -> None:
    jobs = [made.job(0, 200, "PREEMPTED", job_id="small", qos="low"),
            made.job(200.5, 10, "COMPLETED", **{"job_id": "next", **next_job})]  # fmt: skip
    _, found = judged(made.past(jobs))
    assert found.links["preempted_by"].to_list() == [None]


@pytest.mark.parametrize(("run_min", "gpus", "gpu_h"), [(300, 1024, 512), (10, 8, 4 / 3), (30, 8, 4), (0, 8, 0)])
def test_lost_work_is_the_run_time_up_to_the_cap_times_gpus(made: Any, run_min: float, gpus: int, gpu_h: float) -> None:
    past = made.past([made.job(0, run_min, "NODE_FAIL", gpus=gpus), made.job(0, 900, "COMPLETED", job_id="2")])
    runs = history.started(past).filter(job_id="1")
    assert runs.select(cascades.lost_gpu_h(30)).item() == pytest.approx(gpu_h)


def test_losses_by_size_add_up_to_all(made: Any) -> None:
    past = chain(made)
    table = losses.by_size(past, *judged(past))
    total = table.filter(gpus_class="all").to_dicts()[0]
    parts = table.filter(pl.col("gpus_class") != "all")
    assert (total["failures"], total["preempted"]) == (1, 2)
    assert total["direct_gpu_h"] == pytest.approx(512)
    assert total["second_order_gpu_h"] == pytest.approx((16 + 8) / 2)
    for column in ("direct_gpu_h", "second_order_gpu_h", "used_gpu_h"):
        assert parts[column].sum() == pytest.approx(total[column])


def test_the_buckets_of_every_week_add_up_to_one(made: Any) -> None:
    past = chain(made)
    weeks = losses.weeks(past, *judged(past))
    shares = weeks.group_by("week").agg(pl.col("share").sum())
    assert shares["share"].to_list() == [pytest.approx(1)]
    assert weeks["gpu_h"].min() >= 0  # type: ignore[operator]
    used = history.started(past)["gpu_h"].sum()
    assert weeks["gpu_h"].sum() == pytest.approx(used)
    rework = weeks.filter(bucket="rework")["gpu_h"].item()
    assert rework == pytest.approx(512)


def test_nothing_happened_is_no_cascade_and_no_loss(made: Any) -> None:
    past = made.past([])
    attributed, found = judged(past)
    assert cascades.top(found, attributed).height == 0
    assert losses.by_size(past, attributed, found)["used_gpu_h"].to_list() == [0]
    assert losses.weeks(past, attributed, found).height == 0


def partitioned(made: Any, low: int, high: int) -> History:
    """`low` jobs of `scavenge` give way to jobs of `prod`, and `high` the other way round; one QOS, and no names."""
    jobs = []
    for i, (victim, taker) in enumerate([("scavenge", "prod")] * low + [("prod", "scavenge")] * high):
        node = [f"n{i}"]
        jobs.append(made.job(i, 200, "PREEMPTED", job_id=f"v{i}", nodes=node, partition=victim))
        jobs.append(made.job(i + 200.5, 60, "COMPLETED", job_id=f"t{i}", nodes=node, partition=taker))
    return made.past(jobs)


def test_between_partitions_the_one_that_takes_more_than_it_gives_preempts(made: Any) -> None:
    _, found = judged(partitioned(made, 5, 1))
    assert found.links.sort("run")["preempted_by"].to_list() == ["t0", "t1", "t2", "t3", "t4", None]
    assert found.links["inferred"].sum() == 5
    _, unclear = judged(partitioned(made, 3, 3))
    assert unclear.links["preempted_by"].null_count() == 6
