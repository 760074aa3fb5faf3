"""Each transcript of tests/scenarios still comes out as it is written. `pytest --update-scenarios` rewrites them."""

from pathlib import Path

import pytest
from scenario import Scenario

SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "scenarios").glob("*.txt"))


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
        "critical_with_two_jobs",
        "major_then_the_job_ends",
        "major_becomes_critical",
        "two_nodes_of_one_job",
        "operator_drained_first",
        "operator_resumes",
        "drain_limits_hold_and_release",
        "flapping",
        "controller_restarts",
        "scheduler_down",
        "repaired_and_returned",
        "shadow_and_observe",
        "jobs_that_cannot_be_requeued",
        "a_job_that_is_requeued_too_often",
        "interactive_jobs_can_be_ended",
        "called_off_before_it_is_done",
        "new_rules_and_checks_are_shadow",
        "one_file_server_fails_everywhere",
        "one_switch_takes_its_nodes_down",
        "a_new_agent_finds_the_same_everywhere",
        "breaker_opens_and_a_person_closes_it",
        "half_the_fleet_falls_silent",
        "one_node_is_lost",
        "a_lemon_is_not_taken_back",
        "lemons_are_few",
        "maintenance",
        "a_reservation_keeps_its_nodes",
    }
    assert stories <= {path.stem for path in SCENARIOS}
