"""Supervision of real worker processes: hangs, crashes, back-off. No fakes: signals and a frozen file system."""

import asyncio
import dataclasses
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.agent.workers.worker import Setup
from nodetriage.checks.model import Check, KernelRecord, Outcome, Severity

CATALOGUE = "trial_checks:ALL"
BLOCKED_S = 15.0
RECORD = KernelRecord(9, 5, 3, "NTTRIAL fault of part gpu7")


def with_workers(
    body: Callable[[WorkerPool, list[str]], Awaitable[None]], policies: dict[str, Any] | None = None
) -> None:
    """Runs the body in an event loop whose greatest pause is measured: supervision must never block it."""

    async def main() -> None:
        freed: list[str] = []
        workers = WorkerPool(Setup(root="/", policies=policies or {}), CATALOGUE, freed.append)
        pause = asyncio.create_task(greatest_pause())
        try:
            await body(workers, freed)
        finally:
            started = time.monotonic()
            await workers.close()
            closing_s = time.monotonic() - started
            pause.cancel()
        # Whoever waits for a check that hangs waits for an hour; a machine that is busy stands still for a moment.
        assert closing_s < BLOCKED_S
        assert PAUSES[-1] < BLOCKED_S, "the event loop was blocked"

    asyncio.run(main())


PAUSES: list[float] = []


async def greatest_pause() -> None:
    PAUSES.append(0.0)
    last = time.monotonic()
    while True:
        await asyncio.sleep(0.01)
        now = time.monotonic()
        PAUSES[-1] = max(PAUSES[-1], now - last)
        last = now


def hanging() -> Check[Any, Any]:
    """The check "word" for when it is to hang: it is given up soon."""
    from trial_checks import HANG_S, WORD

    return dataclasses.replace(WORD, timeout_s=HANG_S)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def test_a_check_runs_in_a_worker_with_the_policy_that_was_set(trial: Path) -> None:
    from trial_checks import WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        (trial / "word").write_text("bad mlx5_0/1")
        result = await workers.run(WORD)
        assert result.outcome is Outcome.FINDINGS
        assert [(f.component, f.evidence) for f in result.findings] == [("mlx5_0/1", {"limit": 7})]
        workers.configure(Setup(root="/", policies={}))
        result = await workers.run(WORD)
        assert result.findings[0].evidence == {"limit": 3}

    with_workers(body, {"word": {"limit": 7}})


def test_the_memory_of_a_check_travels_through_the_agent_and_survives_its_worker(trial: Path) -> None:
    from trial_checks import COUNT

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        first = await workers.run(COUNT)
        second = await workers.run(COUNT, memory=first.memory)
        os.kill(workers.pids["fabric"], signal.SIGKILL)
        await workers.run(COUNT, memory=second.memory)
        third = await workers.run(COUNT, memory=second.memory)
        assert [r.findings[0].component for r in (first, second, third)] == ["run-0", "run-1", "run-2"]

    with_workers(body)


def test_a_memory_of_another_shape_is_dropped_and_that_is_said(trial: Path) -> None:
    from trial_checks import COUNT

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        result = await workers.run(COUNT, memory=b'{"laps": "many"}')
        assert result.findings[0].component == "run-0"
        assert "started without its memory" in result.why

    with_workers(body)


def test_kernel_records_are_handed_to_the_check(trial: Path) -> None:
    from trial_checks import LOG

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        result = await workers.run(LOG, (RECORD,))
        assert [f.component for f in result.findings] == ["gpu7"]
        assert (await workers.run(LOG, ())).outcome is Outcome.OK

    with_workers(body)


def test_a_worker_holds_no_descriptor_of_the_agent(trial: Path) -> None:
    from trial_checks import WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        held = [os.open("/dev/zero", os.O_RDONLY) for _ in range(40)]
        try:
            (trial / "word").write_text("fds")
            found = (await workers.run(WORD)).findings[0].evidence["open"]
        finally:
            for fd in held:
                os.close(fd)
        assert len(str(found).split(",")) <= 8  # std, /dev/null, channel, its file, the folder being listed

    with_workers(body)


def test_a_library_that_prints_does_not_disturb_the_protocol(trial: Path) -> None:
    from trial_checks import WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        (trial / "word").write_text("print")
        assert (await workers.run(WORD)).outcome is Outcome.OK

    with_workers(body)


def test_what_is_asked_together_is_answered_each_by_its_own(trial: Path) -> None:
    from trial_checks import COUNT, LOG, TWIN, WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        (trial / "word").write_text("bad port1")
        asked = [(LOG, (RECORD,)), (WORD, ()), (LOG, ()), (COUNT, ()), (TWIN, ()), (WORD, ())]
        results = await asyncio.gather(*(workers.run(check, records) for check, records in asked))
        assert [r.check for r in results] == [check.name for check, _ in asked]
        assert [[f.component for f in r.findings] for r in results] == [
            ["gpu7"],
            ["port1"],
            [],
            ["run-0"],
            [],
            ["port1"],
        ]

    with_workers(body)


def test_a_finding_does_not_wait_behind_a_hang(trial: Path) -> None:
    from trial_checks import TWIN

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        (trial / "word").write_text("spin")
        (trial / "twin").write_text("bad port1")
        found, hung = (asyncio.ensure_future(workers.run(check)) for check in (TWIN, hanging()))
        assert [f.component for f in (await found).findings] == ["port1"]
        assert not hung.done()
        assert (await hung).outcome is Outcome.HUNG

    with_workers(body)


@pytest.mark.parametrize(("word", "outcome"), [("spin", Outcome.HUNG), ("crash", Outcome.BROKEN)])
def test_who_ends_a_worker_is_blamed_alone_and_the_others_are_run_again(
    trial: Path, word: str, outcome: Outcome
) -> None:
    from trial_checks import TWIN

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        (trial / "word").write_text(word)
        results = await asyncio.gather(*(workers.run(check) for check in (TWIN, TWIN, hanging(), TWIN)))
        assert [r.outcome for r in results] == [Outcome.OK, Outcome.OK, outcome, Outcome.OK]
        assert "check word" in results[2].why or "read" in results[2].why
        # By its own limit, not by that of the one before, whose answer waits in the worker.
        assert results[2].took_ms < TWIN.timeout_s * 1000 / 2

    with_workers(body)


@pytest.mark.parametrize(("word", "says"), [("crash", "killed by SIGSEGV"), ("exit", "ended with status 7")])
def test_a_worker_that_ends_makes_its_check_broken_and_is_replaced_with_back_off(
    trial: Path, word: str, says: str
) -> None:
    from trial_checks import WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        (trial / "word").write_text(word)
        first, second, third = [await workers.run(WORD) for _ in range(3)]
        while "the next starts in" not in third.why:  # a machine that stood still for as long as we were to wait
            assert (third.outcome, says in third.why) == (Outcome.BROKEN, True)
            third = await workers.run(WORD)
        assert {r.outcome for r in (first, second, third)} == {Outcome.BROKEN}
        assert says in first.why
        assert "check word" in first.why or "read" in first.why
        assert says in second.why  # the first replacement comes at once
        (trial / "word").write_text("ok")
        await until_ok(workers)

    async def until_ok(workers: WorkerPool) -> None:
        end = time.monotonic() + 60
        while (await workers.run(WORD)).outcome is not Outcome.OK:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)

    with_workers(body)


def test_a_worker_that_is_killed_from_outside_is_replaced(trial: Path) -> None:
    from trial_checks import WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        assert (await workers.run(WORD)).outcome is Outcome.OK
        old = workers.pids["system"]
        os.kill(old, signal.SIGKILL)
        await eventually(lambda: state_of(old) == "gone")
        broken = await workers.run(WORD)
        assert (broken.outcome, "SIGKILL" in broken.why) == (Outcome.BROKEN, True)
        assert (await workers.run(WORD)).outcome is Outcome.OK
        assert workers.pids["system"] != old

    with_workers(body)


def test_a_worker_that_is_killed_takes_its_program_with_it(trial: Path) -> None:
    from trial_checks import WORD

    (trial / "word").write_text("program")

    async def body(workers: WorkerPool, _: list[str]) -> None:
        run = asyncio.create_task(workers.run(WORD))
        await eventually((trial / "pid").exists)
        program = int((trial / "pid").read_text())
        os.kill(workers.pids["system"], signal.SIGKILL)
        assert (await run).outcome is Outcome.BROKEN
        await eventually(lambda: state_of(program) == "gone")
        (trial / "word").write_text("ok")
        assert (await workers.run(WORD)).outcome is Outcome.OK

    with_workers(body)


def test_the_fork_server_may_be_killed_too(trial: Path) -> None:
    from trial_checks import WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        assert (await workers.run(WORD)).outcome is Outcome.OK
        worker = workers.pids["system"]
        os.kill(workers.pids["forkserver"], signal.SIGKILL)
        await eventually(lambda: state_of(worker) in ("Z", "gone"))  # no worker outlives it
        assert (await workers.run(WORD)).outcome is Outcome.BROKEN
        assert (await workers.run(WORD)).outcome is Outcome.OK

    with_workers(body)


def test_a_caller_that_gives_up_does_not_disturb_the_next_run(trial: Path) -> None:
    from trial_checks import COUNT, WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        await workers.run(COUNT)
        for _ in range(5):
            given_up = asyncio.create_task(workers.run(WORD))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            given_up.cancel()
            (trial / "word").write_text("bad port1")
            result = await workers.run(WORD)
            assert result.outcome in (Outcome.OK, Outcome.FINDINGS)
            assert (await workers.run(WORD)).findings[0].component == "port1"

    with_workers(body)


def test_a_check_past_its_deadline_is_hung_and_its_worker_killed(trial: Path) -> None:
    from trial_checks import HANG_S, WORD

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        assert (await workers.run(WORD)).outcome is Outcome.OK  # so that the worker is there
        (trial / "word").write_text("spin")
        started = time.monotonic()
        result = await workers.run(hanging())
        assert time.monotonic() - started < HANG_S + BLOCKED_S
        assert result.outcome is Outcome.HUNG
        finding = result.findings[0]
        assert (finding.component, finding.fault, finding.severity) == (
            str(trial / "word"),
            "check_hung",
            Severity.WARNING,
        )
        assert finding.evidence["doing"] == f"read {trial / 'word'}"
        assert finding.evidence["state"] == "S"
        assert float(finding.evidence["waited_s"]) >= HANG_S
        await eventually(lambda: workers.abandoned == ())  # it could be killed
        (trial / "word").write_text("ok")
        assert (await workers.run(WORD)).outcome is Outcome.OK

    with_workers(body)


def test_a_frozen_disk_abandons_one_worker_and_the_others_go_on(trial: Path, disk: Any) -> None:
    from trial_checks import DISK, DISK2, ENOUGH_S, WORD

    well = dataclasses.replace(DISK, timeout_s=ENOUGH_S)

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        assert (await workers.run(well)).outcome is Outcome.OK
        disk.freeze()
        hung, word = await asyncio.gather(workers.run(DISK), workers.run(WORD))
        assert word.outcome is Outcome.OK
        assert hung.outcome is Outcome.HUNG
        (finding,) = hung.findings
        assert (finding.component, finding.fault) == (str(trial / "mount"), "mount_hung")
        assert finding.evidence["state"] == "D"
        assert finding.evidence["wchan"]
        assert "freeze" in str(finding.evidence["stack"]) or "percpu_rwsem" in str(finding.evidence["stack"])
        (abandoned,) = workers.abandoned
        assert state_of(abandoned.pid) == "D"

        behind = await workers.run(DISK2)  # the class is not tried again while that worker lives
        assert (behind.outcome, behind.findings) == (Outcome.HUNG, ())
        assert f"pid {abandoned.pid}" in behind.why
        assert len(workers.abandoned) == 1

        disk.thaw()
        await eventually(lambda: freed == ["storage"])
        assert workers.abandoned == ()
        assert (await workers.run(well)).outcome is Outcome.OK

    with_workers(body)


def test_closing_does_not_wait_for_a_worker_in_uninterruptible_sleep(trial: Path, disk: Any) -> None:
    from trial_checks import DISK, ENOUGH_S

    async def body(workers: WorkerPool, freed: list[str]) -> None:
        await workers.run(dataclasses.replace(DISK, timeout_s=ENOUGH_S))
        disk.freeze()
        await workers.run(DISK)
        assert len(workers.abandoned) == 1

    with_workers(body)  # asserts that closing does not take for ever
