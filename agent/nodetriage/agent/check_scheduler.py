"""Runs each check when it is due or something wakes it, and turns its results into changes of the verdict."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from nodetriage.agent.core import grace, quarantine, self_check, verdict
from nodetriage.agent.core.aligned_timer import AlignedTimer
from nodetriage.agent.core.record_queue import RecordQueue
from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import Change, CheckVerdict, Verdict
from nodetriage.agent.waiting import woken_or_due
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.checks.model import Check, Outcome
from nodetriage.service.crashpoint import passing

CONFIRM_S = 60.0  # a finding that several runs must show: the next run comes after this time or the check's period
RETRY_S = 5.0  # after a run that could not judge its kernel records
RESTART_S = 1.0  # the least time between two runs of a check: its device class has others to run
NO_MEMORY = b"null"  # as a worker gives it


class Record(Protocol):
    """Takes changes, and values to store with them in one transaction."""

    def __call__(self, changes: Iterable[Change], keep: Mapping[str, bytes]) -> None: ...


class CheckScheduler:
    """The only owner of the verdict. `record_queue` is None where the agent does not follow the kernel log."""

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
        self._record_queue = record_queue
        self._memories = dict(memories)
        self._record = record
        self._clock = clock
        self._boot_grace_s = boot_grace_s
        self._one_at_a_time: dict[str, asyncio.Lock] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unsaved: set[str] = set()
        self._timer = timer or AlignedTimer()

    @property
    def checks(self) -> Mapping[str, Check[Any, Any]]:
        return self._checks

    def is_behind(self, name: str) -> bool:
        """Whether the check has kernel records still to judge, or must read the log itself."""
        if self._record_queue is None:
            return self._checks[name].kernel_pattern is not None
        return self._record_queue.waiting(name)

    def start(self) -> None:
        """Runs every check at once, then each at the moments of the node's timer."""
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
        """Replaces the set of checks (new settings)."""
        await self.stop()
        self._checks = {check.name: check for check in checks}
        if self._record_queue:
            self._record_queue.use(self._checks.values())
        self.drop_disabled()
        self.start()

    def drop_disabled(self) -> None:
        """Clears what checks said that are not enabled now: since a reload, or since the agent last ran."""
        gone = self.verdict.checks.keys() - self._checks.keys() - {self_check.SELF.name}
        if not gone:
            return
        self.verdict, changes = verdict.without(self.verdict, gone)
        for name in gone:
            self._memories[name] = NO_MEMORY
        self._unsaved |= gone
        self._record(changes, self.kept())

    def follow_no_log(self) -> None:
        """The agent cannot follow the kernel log: checks read it themselves, or report why they cannot."""
        self._record_queue = None

    def wake(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._wakes:
                self._wakes[name].set()

    def wake_source(self, source: str) -> None:
        """Wakes the checks that have this source in `wakes_on`."""
        self.wake(name for name, check in self._checks.items() if source in check.wakes_on)

    def wake_class(self, device_class: str) -> None:
        """Wakes the hung checks of this class: its hung worker has ended."""
        hung = (n for n, c in self.verdict.checks.items() if c.outcome is Outcome.HUNG)
        self.wake([n for n in hung if n in self._checks and self._checks[n].worker == device_class])

    async def run(self, name: str) -> CheckVerdict:
        """Runs the check once, after a run that is under way.

        Raises KeyError for a check that is not enabled, also where a reload has switched it off during the run.
        """
        async with self._one_at_a_time.setdefault(name, asyncio.Lock()):
            check = self._checks[name]
            records = self._record_queue.take(name) if self._record_queue else None
            self._workers.quarantine(quarantine.of(self.verdict))
            passing("check.before_run")
            try:
                result = await self._workers.run(check, records, self._memories.get(name))
            except asyncio.CancelledError:
                if self._record_queue:
                    self._record_queue.not_judged(name, blame=False)
                raise
            passing("check.after_run")
            if name not in self._checks:
                raise KeyError(name)
            self._take(check, result)
            return self.verdict.checks[name]

    def judge_self(self, result: Result) -> None:
        """Adds the agent's report on itself to the verdict, as for any check."""
        self.verdict, changes = verdict.advance(self.verdict, self_check.SELF, result, self._clock())
        if changes:
            self._record(changes, self.kept())

    def clear(self, check: str, component: str, fault: str, actor: str) -> bool:
        """Clears a finding on an operator's behalf; False if no such finding is open."""
        self.verdict, changes = verdict.clear(self.verdict, check, component, fault, actor)
        self._record(changes, self.kept())
        return bool(changes)

    def kept(self) -> dict[str, bytes]:
        """The present values of all that a restart needs."""
        keep = {f"memory:{name}": self._memories[name] for name in self._unsaved if name in self._memories}
        self._unsaved.clear()
        keep["verdict"] = msgspec.json.encode(self.verdict)
        if self._record_queue:
            keep["kernel_log"] = msgspec.json.encode(self._record_queue.position)
        return keep

    def _take(self, check: Check[Any, Any], result: Result) -> None:
        name = check.name
        self.runs += 1
        if self._record_queue:
            if result.outcome in (Outcome.HUNG, Outcome.BROKEN):
                self._record_queue.not_judged(name, blame=result.outcome is Outcome.BROKEN and result.ran)
            else:
                self._record_queue.judged(name)
        if result.memory is not None:
            self._memories[name] = result.memory
            self._unsaved.add(name)
        now_s = self._clock()
        result = grace.spared(result, now_s, self._boot_grace_s)
        self.verdict, changes = verdict.advance(self.verdict, check, result, now_s)
        if changes:  # the daemon saves runs without changes from time to time
            self._record(changes, self.kept())

    async def _keep_running(self, name: str) -> None:
        check, wake = self._checks[name], self._wakes[name]
        wait_s = 0.0
        while True:
            await woken_or_due(wake, wait_s)
            wake.clear()
            started_s = time.monotonic()
            await self.run(name)
            behind = self._record_queue is not None and self._record_queue.waiting(name)
            due_s = self._timer.until_next_s(check.every_s, time.monotonic())
            wait_s = until_again_s(self.verdict.checks[name], due_s, behind, check.again_s)
            if wake.is_set():
                await asyncio.sleep(max(0.0, min(RESTART_S, check.every_s) - (time.monotonic() - started_s)))


def until_again_s(known: CheckVerdict, due_s: float, behind: bool, again_s: float | None = None) -> float:
    """Seconds until the check's next run. `due_s`: until its regular run. `behind`: it has records still to judge.

    A finding that a further run must confirm, records that no run has judged, and a new finding of a check that wants
    to look again soon (`again_s`) do not wait for the regular run.
    """
    if again_s is not None and any(finding.raised_s == known.at_s for finding in known.open):
        due_s = min(due_s, again_s)
    return min(due_s, RETRY_S if behind else due_s, CONFIRM_S if known.rising else due_s)
