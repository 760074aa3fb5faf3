"""When a check runs again, and what becomes of a run whose check is switched off meanwhile."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from nodetriage.agent.check_scheduler import CONFIRM_S, RETRY_S, CheckScheduler, until_again_s
from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import Change, CheckVerdict, Kind, Verdict, advance
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.checks.registry import ALL

GPU_LOST = next(check for check in ALL if check.name == "gpu_lost")
GPU_ONCE = dataclasses.replace(GPU_LOST, raise_after=1)
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


def test_a_check_that_wants_to_look_again_does_so_after_a_new_finding_alone() -> None:
    known = Verdict("boot")
    found = Result("gpu_lost", Outcome.FINDINGS, (GONE,))
    waits = []
    for at_s in (1.0, 11.0):
        known, _ = advance(known, GPU_ONCE, found, now_s=at_s)
        waits.append(until_again_s(known.checks["gpu_lost"], due_s=290, behind=False, again_s=10))

    assert waits == [10, 290]
    assert until_again_s(after(()), due_s=290, behind=False, again_s=10) == 290
    assert until_again_s(known.checks["gpu_lost"], due_s=290, behind=False) == 290


class SlowWorkers:
    """Workers whose runs end when the test says so, each with a dead GPU."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.asked = asyncio.Event()

    def quarantine(self, addresses: tuple[str, ...]) -> None:
        assert addresses == ()

    async def run(self, check: Any, records: Any, memory: bytes | None) -> Result:
        self.asked.set()
        await self.may_end.wait()
        return Result(check.name, Outcome.FINDINGS, (GONE,), memory=b"1")


@pytest.mark.parametrize("stays", [False, True], ids=["switched off", "still enabled"])
async def test_a_run_under_way_counts_only_while_its_check_is_enabled(stays: bool) -> None:
    changes: list[Change] = []
    kept: dict[str, bytes] = {}

    def record(new: Iterable[Change], keep: Mapping[str, bytes]) -> None:
        changes.extend(new)
        kept.update(keep)

    workers, check = SlowWorkers(), GPU_ONCE
    known, _ = advance(Verdict("boot"), check, Result(check.name, Outcome.FINDINGS, (GONE,)), 1.0)
    scheduler = CheckScheduler([check], workers, None, known, {}, record, lambda: 2.0)  # type: ignore[arg-type]
    run = asyncio.create_task(scheduler.run(check.name))  # as a prolog asks for it
    await workers.asked.wait()
    await scheduler.use([check] if stays else [])
    workers.may_end.set()
    try:
        if stays:
            assert (await run).outcome is Outcome.FINDINGS
            assert changes == []
            return
        with pytest.raises(KeyError):
            await run
        assert scheduler.verdict.checks == {}
        assert [c.kind for c in changes] == [Kind.CLEARED, Kind.OUTCOME]
        assert kept[f"memory:{check.name}"] == b"null"
    finally:
        await scheduler.stop()
