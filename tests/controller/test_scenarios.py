"""Each transcript of tests/scenarios still comes out as it is written. `pytest --update-scenarios` rewrites them."""

from pathlib import Path

import pytest
from scenario import Scenario

SCENARIOS = sorted((Path(__file__).resolve().parents[1] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_the_transcript_comes_out_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    came_out = Scenario().run(text)
    if request.config.getoption("--update-scenarios"):
        path.write_text(came_out)
    else:
        assert came_out == text


def test_there_is_a_transcript_for_each_story_that_the_policy_must_tell() -> None:
    stories = {
        "high_with_two_jobs",
        "low_then_the_job_ends",
        "low_becomes_high",
        "two_nodes_of_one_job",
        "operator_drained_first",
        "operator_resumes",
        "brake_holds_and_releases",
        "flapping",
        "controller_restarts",
        "scheduler_down",
        "repaired_and_returned",
        "shadow_and_observe",
        "jobs_that_cannot_be_requeued",
        "a_job_that_is_requeued_too_often",
    }
    assert stories <= {path.stem for path in SCENARIOS}
