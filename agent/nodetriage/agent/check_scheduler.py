"""Runs each check when its time comes or something wakes it, and turns what it says into changes of the verdict."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from nodetriage.agent.core import grace, quarantine, verdict
from nodetriage.agent.core.aligned_timer import AlignedTimer
from nodetriage.agent.core.record_queue import RecordQueue
from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import Change, CheckVerdict, Verdict
from nodetriage.agent.waiting import woken_or_due
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.checks.model import Check, Outcome
from nodetriage.service.crashpoint import passing

CONFIRM_S = 60.0  # a finding that several runs must show is looked for again after this, or its period if shorter
RETRY_S = 5.0  # a check that could not judge the lines that it was given
RESTART_S = 1.0  # a check that is woken without end still leaves its class time for the others


class Record(Protocol):
    """Takes changes, and values to keep with them in one transaction."""

    def __call__(self, changes: Iterable[Change], keep: Mapping[str, bytes]) -> None: ...


class CheckScheduler:
    """The one owner of the verdict. `inbox` is None where the kernel's log is not followed."""

    def __init__(
        self,
        checks: Iterable[Check[Any, Any]],
        workers: WorkerPool,
        record_queue: RecordQueue | None,
        known: Verdict,
        memories: Mapping[str, bytes],
        record: Record,
        clock: Callable[[], float],
        boot_grace_s: float = 0.0,
        timer: AlignedTimer | None = None,
    ) -> None:
        self.verdict = known
        self.runs = 0
        self._checks = {check.name: check for check in checks}
        self._workers = workers
        self._inbox = record_queue
        self._memories = dict(memories)
        self._record = record
        self._clock = clock
        self._boot_grace_s = boot_grace_s
        self._turns: dict[str, asyncio.Lock] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unsaved: set[str] = set()
        self._timer = timer or AlignedTimer()

    @property
    def checks(self) -> Mapping[str, Check[Any, Any]]:
        return self._checks

    def is_behind(self, name: str) -> bool:
        """Whether there are lines in the kernel's log that the check has still to judge, or that nobody brings it."""
        if self._inbox is None:
            return self._checks[name].kernel_pattern is not None
        return self._inbox.waiting(name)

    def start(self) -> None:
        """Every check at once, then each by the node's cadence."""
        for name in self._checks:
            self._wakes[name] = asyncio.Event()
            self._tasks[name] = asyncio.get_running_loop().create_task(self._keep_running(name), name=f"check {name}")

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def use(self, checks: Iterable[Check[Any, Any]]) -> None:
        """New settings: what is held through a check that is no longer enabled is cleared."""
        await self.stop()
        was, self._checks = self._checks, {check.name: check for check in checks}
        if self._inbox:
            self._inbox.use(self._checks.values())
        self.verdict, changes = verdict.forget_checks(self.verdict, was.keys() - self._checks.keys())
        self._record(changes, self.kept())
        self.start()

    def follow_no_log(self) -> None:
        """The kernel's log cannot be followed: checks read it themselves, or say what prevents that."""
        self._inbox = None

    def wake(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._wakes:
                self._wakes[name].set()

    def wake_source(self, source: str) -> None:
        """Those that asked for this source in `wakes_on`."""
        self.wake(name for name, check in self._checks.items() if source in check.wakes_on)

    def wake_class(self, device_class: str) -> None:
        """A hung worker of this class is free at last: look again at what could not be looked at."""
        hung = (n for n, c in self.verdict.checks.items() if c.outcome is Outcome.HUNG)
        self.wake([n for n in hung if n in self._checks and self._checks[n].worker == device_class])

    async def run(self, name: str) -> CheckVerdict:
        """One run now (after one that is under way). Raises KeyError for a check that is not enabled."""
        check = self._checks[name]
        async with self._turns.setdefault(name, asyncio.Lock()):
            records = self._inbox.take(name) if self._inbox else None
            self._workers.quarantine(quarantine.held(self.verdict))
            passing("check.before_run")
            try:
                result = await self._workers.run(check, records, self._memories.get(name))
            except asyncio.CancelledError:
                if self._inbox:
                    self._inbox.not_judged(name, blame=False)
                raise
            passing("check.after_run")
            self._take(check, result)
            return self.verdict.checks[name]

    def judge_self(self, check: Check[Any, Any], result: Result) -> None:
        """What the agent says of itself, by the same way as any check."""
        self.verdict, changes = verdict.advance(self.verdict, check, result, self._clock())
        if changes:
            self._record(changes, self.kept())

    def clear(self, check: str, component: str, fault: str, actor: str) -> bool:
        """An operator's word; False if nothing of the kind is held."""
        self.verdict, changes = verdict.clear(self.verdict, check, component, fault, actor)
        self._record(changes, self.kept())
        return bool(changes)

    def kept(self) -> dict[str, bytes]:
        """All that a restart needs, as of now."""
        keep = {f"memory:{name}": self._memories[name] for name in self._unsaved if name in self._memories}
        self._unsaved.clear()
        keep["verdict"] = msgspec.json.encode(self.verdict)
        if self._inbox:
            keep["kernel_log"] = msgspec.json.encode(self._inbox.position)
        return keep

    def _take(self, check: Check[Any, Any], result: Result) -> None:
        name = check.name
        self.runs += 1
        if self._inbox:
            if result.outcome in (Outcome.HUNG, Outcome.BROKEN):
                self._inbox.not_judged(name, blame=result.outcome is Outcome.BROKEN and result.ran)
            else:
                self._inbox.judged(name)
        if result.memory is not None:
            self._memories[name] = result.memory
            self._unsaved.add(name)
        now_s = self._clock()
        result = grace.spared(result, now_s, self._boot_grace_s)
        self.verdict, changes = verdict.advance(self.verdict, check, result, now_s)
        if changes:  # what did not change anything is saved from time to time (daemon.py)
            self._record(changes, self.kept())

    async def _keep_running(self, name: str) -> None:
        check, wake = self._checks[name], self._wakes[name]
        wait_s = 0.0
        while True:
            await woken_or_due(wake, wait_s)
            wake.clear()
            started_s = time.monotonic()
            await self.run(name)
            behind = self._inbox is not None and self._inbox.waiting(name)
            due_s = self._timer.until_next_s(check.every_s, time.monotonic())
            wait_s = until_again_s(self.verdict.checks[name], due_s, behind)
            if wake.is_set():
                await asyncio.sleep(max(0.0, min(RESTART_S, check.every_s) - (time.monotonic() - started_s)))


def until_again_s(known: CheckVerdict, due_s: float, behind: bool) -> float:
    """How long until the check's next run, which is due in `due_s`: neither what a run must confirm nor lines that are
    not judged (`behind`) are left so long."""
    return min(due_s, RETRY_S if behind else due_s, CONFIRM_S if known.rising else due_s)
