"""The false-positive budget: strictly below one percent of COMPLETED jobs."""

from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.history import false_positives
from nodetriage.analysis.history.false_positives import Budget, share_interval


def completed(made: Any, seen: int, of: int = 1000, **event: Any) -> false_positives.FalsePositives:
    jobs = [made.job(0, 60, "COMPLETED", job_id=str(i), nodes=[f"n{i}"]) for i in range(of)]
    told = {"fault": "mount_stale", **event}
    events = [made.event(f"n{i}", 30, told["fault"]) | told for i in range(seen)]
    return false_positives.false_positives(made.past(jobs, events))


@pytest.mark.parametrize(("seen", "alarm"), [(0, False), (9, False), (10, True)])
def test_nine_of_a_thousand_pass_and_ten_do_not(made: Any, seen: int, alarm: bool) -> None:
    found = completed(made, seen)
    assert (found.completed, found.alarm) == (1000, alarm)
    assert found.per_check["jobs"][0] == seen


@pytest.mark.parametrize("quiet", [{"severity": 2}, {"kind": "cleared"}, {"fault": "gpu_xid_application"}])
def test_what_is_no_failed_check_costs_nothing(made: Any, quiet: dict[str, Any]) -> None:
    assert completed(made, 20, **quiet).per_check["jobs"].to_list() == [0]


@pytest.mark.parametrize(("minute", "jobs"), [(-0.1, 0), (0, 1), (60, 1), (60.1, 0)])
def test_only_the_time_of_the_run_counts_both_ends_included(made: Any, minute: float, jobs: int) -> None:
    past = made.past([made.job(0, 60, "COMPLETED")], [made.event("n0", minute, "mount_stale")])
    assert false_positives.false_positives(past).per_check["jobs"][0] == jobs


def test_a_job_counts_once_in_all_and_once_for_each_check(made: Any) -> None:
    events = [made.event(n, m, f, check=c) for n, m, f, c in (
        ("n0", 10, "mount_stale", "mounts"),
        ("n1", 20, "mount_stale", "mounts"),
        ("n1", 30, "ib_link_down", "ib_link"),
    )]  # fmt: skip
    past = made.past([made.job(0, 60, "COMPLETED", nodes=["n0", "n1"])], events)
    found = false_positives.false_positives(past, Budget(share=0.5)).per_check
    assert found.select("check", "jobs").rows() == [("all checks", 1), ("ib_link", 1), ("mounts", 1)]


def test_failed_jobs_are_no_false_positives(made: Any) -> None:
    past = made.past([made.job(0, 60, "FAILED")], [made.event("n0", 30, "mount_stale")])
    found = false_positives.false_positives(past)
    assert (found.completed, found.alarm) == (0, False)


def test_intervals_of_a_share_hold_it_and_reach_the_ends() -> None:
    low, high = share_interval(5, 1000)
    assert low < 0.005 < high
    assert share_interval(0, 1000)[0] == 0
    assert share_interval(1000, 1000)[1] == 1
    assert share_interval(0, 0) == (0, 1)
    # Zero of n: the bound is 1 - 0.05^(1/n).
    assert share_interval(0, 100)[1] == pytest.approx(1 - 0.05 ** (1 / 100))


def test_an_empty_history_has_no_alarm(made: Any) -> None:
    found = false_positives.false_positives(made.past([]))
    assert not found.alarm
    assert found.per_check.schema["over_budget"] == pl.Boolean
