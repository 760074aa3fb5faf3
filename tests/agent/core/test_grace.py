"""A node that has just been booted."""

import pytest

from nodetriage.agent.core.grace import STARTING, spared
from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.checks.model.faults import faults

NOT_THERE = Finding("0000:3a:00.0", "gpu_missing", Severity.CRITICAL)
HOT = Finding("0000:3a:00.0", "gpu_hot", Severity.WARNING)


def found(*findings: Finding) -> Result:
    return Result("gpu_lost", Outcome.FINDINGS, findings, cleared=(("a", "b"),), memory=b"7")


def test_a_gpu_that_is_not_there_yet_just_after_boot_is_not_known() -> None:
    result = spared(found(NOT_THERE), 87.4, 300)

    assert (result.outcome, result.findings, result.cleared) == (Outcome.BROKEN, (), ())
    assert result.why == (
        "87 s after boot, drivers may still be starting (boot_grace_s = 300): gpu_missing 0000:3a:00.0"
    )
    assert result.memory == b"7"


@pytest.mark.parametrize("uptime_s", [300, 301, 1e6])
def test_a_gpu_that_is_still_not_there_afterwards_is_missing(uptime_s: float) -> None:
    assert spared(found(NOT_THERE), uptime_s, 300) == found(NOT_THERE)


def test_what_no_start_explains_is_told_at_once() -> None:
    assert spared(found(HOT), 10, 300) == found(HOT)


def test_without_a_grace_nothing_is_held_back() -> None:
    assert spared(found(NOT_THERE), 0, 0) == found(NOT_THERE)


def test_the_faults_that_a_start_explains_exist() -> None:
    assert faults().keys() >= STARTING
