"""When a check is run again."""

import pytest

from nodetriage.agent.check_scheduler import CONFIRM_S, RETRY_S, until_again_s
from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import CheckVerdict, Verdict, advance
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.checks.registry import ALL

GPU_LOST = next(check for check in ALL if check.name == "gpu_lost")
GONE = Finding("0000:1b:00.0", "gpu_missing", Severity.CRITICAL)


def after(*runs: tuple[Finding, ...]) -> CheckVerdict:
    """What is known through gpu_lost, of which two runs must agree."""
    verdict = Verdict("boot")
    for findings in runs:
        result = Result("gpu_lost", Outcome.FINDINGS if findings else Outcome.OK, findings)
        verdict, _ = advance(verdict, GPU_LOST, result, now_s=1.0)
    return verdict.checks["gpu_lost"]


def test_a_finding_that_a_second_run_must_show_is_looked_for_before_the_period_is_over() -> None:
    assert until_again_s(after((GONE,)), due_s=290, behind=False) == CONFIRM_S < GPU_LOST.every_s
    assert until_again_s(after((GONE,)), due_s=7, behind=False) == 7


def test_a_check_that_could_not_judge_its_lines_tries_again_soon() -> None:
    assert until_again_s(after(()), due_s=290, behind=True) == RETRY_S
    assert until_again_s(after((GONE,)), due_s=290, behind=True) == RETRY_S


@pytest.mark.parametrize("runs", [((),), ((GONE,), (GONE,)), ((GONE,), ())], ids=["none", "confirmed", "not confirmed"])
def test_else_a_check_is_run_again_when_it_is_due(runs: tuple[tuple[Finding, ...], ...]) -> None:
    assert until_again_s(after(*runs), due_s=290, behind=False) == 290
