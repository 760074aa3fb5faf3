"""Observed ETTR of logical runs."""

from typing import Any

import pytest

from nodetriage.analysis.history import observed
from nodetriage.analysis.history.observed import Observe

ALL = Observe(least_training_h=0)


def two_attempts(made: Any) -> Any:
    """15 min in the queue, 10 h to a node failure, 5 h to the end."""
    return made.past(
        [
            made.job(0, 600, "NODE_FAIL", submit_at=made.at(-15)),
            made.job(600, 300, "COMPLETED", attempt=2, submit_at=made.at(600)),
        ]
    )


def test_a_run_with_one_failure_is_worth_what_the_formula_says(made: Any) -> None:
    (run,) = observed.logical_runs(two_attempts(made), ALL).to_dicts()
    assert (run["attempts"], run["interruptions"]) == (2, 1)
    assert run["queue_h"] * 60 == pytest.approx(15)
    assert run["productive_h"] * 60 == pytest.approx(793.846, rel=1e-5)
    assert run["ettr"] == pytest.approx(0.86759142, rel=1e-6)


def test_the_wait_of_a_requeued_attempt_begins_at_the_end_of_the_last(made: Any) -> None:
    past = made.past(
        [
            made.job(0, 60, "NODE_FAIL"),
            # Slurm keeps the first submit time of a requeued job in some versions.
            made.job(90, 60, "COMPLETED", attempt=2, submit_at=made.at(0)),
        ]
    )
    (run,) = observed.logical_runs(past, ALL).to_dicts()
    assert run["queue_h"] * 60 == pytest.approx(30)


def test_short_runs_and_other_qos_do_not_count(made: Any) -> None:
    past = two_attempts(made)
    assert observed.logical_runs(past).height == 0
    assert observed.logical_runs(past, Observe(least_training_h=15)).height == 1
    assert observed.logical_runs(past, Observe(least_training_h=0, qos="high")).height == 0


@pytest.mark.parametrize(
    ("state", "interruptions"), [("COMPLETED", 0), ("RUNNING", 0), ("CANCELLED", 1), ("FAILED", 1)]
)
def test_every_end_but_completion_counts_as_an_interruption(made: Any, state: str, interruptions: int) -> None:
    run = None if state == "RUNNING" else 300
    past = made.past([made.job(0, run, state), made.job(0, 300, "COMPLETED", job_id="2")])
    found = observed.logical_runs(past, ALL).filter(job_id="1")
    assert found["interruptions"].to_list() == [interruptions]


def test_jobs_submitted_anew_under_one_name_can_be_one_run(made: Any) -> None:
    mine = {"user": "ada", "name": "train"}
    past = made.past(
        [
            made.job(0, 60, "NODE_FAIL", job_id="1", **mine),
            made.job(90, 60, "COMPLETED", job_id="2", submit_at=made.at(80), **mine),
            made.job(0, 60, "COMPLETED", job_id="3", user="ada"),
        ]
    )
    assert observed.logical_runs(past, ALL).height == 3
    together = observed.logical_runs(past, Observe(least_training_h=0, one_run="user_and_name"))
    rows = together.sort("job_id").select("job_id", "attempts", "interruptions")
    assert rows.rows() == [("3", 1, 0), ("ada/train", 2, 1)]
    # It was not in a queue between its end and being submitted again.
    assert together.filter(job_id="ada/train")["queue_h"].item() * 60 == pytest.approx(10)


def test_work_is_never_negative(made: Any) -> None:
    past = made.past([made.job(i * 61, 61, "NODE_FAIL", attempt=i + 1) for i in range(3)])
    (run,) = observed.logical_runs(past, Observe(least_training_h=0, restart_min=120)).to_dicts()
    assert (run["productive_h"], run["ettr"]) == (0, 0)


def test_the_prediction_uses_the_runs_own_queue_time(made: Any) -> None:
    slow = two_attempts(made)
    runs = observed.logical_runs(slow, ALL)
    predicted = observed.with_prediction(runs, 6.5, ALL)["ettr_model"][0]
    waited = observed.with_prediction(runs.with_columns(queue_h=10.0), 6.5, ALL)["ettr_model"][0]
    assert waited < predicted < 1


def test_where_the_model_has_no_answer_there_is_none(made: Any) -> None:
    runs = observed.logical_runs(two_attempts(made), ALL)
    assert observed.with_prediction(runs.with_columns(node_count=0), 6.5, ALL)["ettr_model"].to_list() == [None]


def test_sizes_are_summed_up_and_an_empty_history_has_none(made: Any) -> None:
    runs = observed.with_prediction(observed.logical_runs(two_attempts(made), ALL), 6.5, ALL)
    assert observed.by_size(runs).select("gpus", "runs", "interruptions").rows() == [(8, 1, 1)]
    nothing = observed.with_prediction(observed.logical_runs(made.past([])), 6.5)
    assert observed.by_size(nothing).height == 0


@pytest.mark.parametrize("wrong", [{"checkpoint_interval_min": 0}, {"restart_min": -1}])
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Observe(**wrong)  # type: ignore[arg-type]
