"""The worker of one device class as the agent uses it: takes runs, gives results, has one worker at a time.

Runs that are asked for in one turn of the loop go to the worker together. Where a worker hangs or dies, only the run
under way fails; the others go to the next worker.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from nodetriage.agent.core.result import Result
from nodetriage.agent.workers import hang
from nodetriage.agent.workers.process import ForkServer, StartFailed, WorkerProcess
from nodetriage.agent.workers.worker import Reply, Request, Setup
from nodetriage.checks.model import Check, KernelRecord, Outcome

KILL_LIMIT_S = 0.5  # a process that still lives then sleeps in the kernel
STATUS_LIMIT_S = 5.0  # for the fork server to report how a process ended
BACK_OFF_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # before the next start, by consecutive failures

Records = tuple[KernelRecord, ...] | None  # None: the worker reads the log itself


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A worker that SIGKILL did not end, because it sleeps uninterruptibly in the kernel."""

    device_class: str
    pid: int
    check: str
    doing: str
    since_s: float  # monotonic


@dataclass(frozen=True, slots=True)
class _Run:
    """One run that a caller waits for."""

    id: int
    check: Check[Any, Any]
    records: Records
    memory: bytes | None
    result: asyncio.Future[Result]

    def end(self, result: Result) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class WorkerHandle:
    """Belongs to the event loop. `on_free` gets the class's name when an abandoned worker has ended."""

    def __init__(self, name: str, server: ForkServer, setup: Setup, on_free: Callable[[str], None]) -> None:
        self.name = name
        self.child: WorkerProcess | None = None
        self.abandoned: Abandoned | None = None
        self.abandoned_programs = 0  # that the living worker started and no signal ends
        self.setup = setup
        self._sent_setup: Setup | None = None  # what the living worker has
        self._server = server
        self._on_free = on_free
        self._ids = itertools.count(1)
        self._asked: deque[_Run] = deque()  # not sent to the worker yet
        self._given: deque[_Run] = deque()
        self._work: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._watch: asyncio.Task[None] | None = None
        self._replies = msgspec.json.Decoder(Reply)

    def ask(self, check: Check[Any, Any], records: Records, memory: bytes | None) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        run = _Run(next(self._ids), check, records, memory, loop.create_future())
        self._asked.append(run)
        if self._work is None or self._work.done():
            self._work = loop.create_task(self._serve())
        return run.result

    async def _serve(self) -> None:
        try:
            while self._asked:
                self._given, self._asked = self._asked, deque()
                while self._given:
                    await self._give()
        except Exception as error:  # noqa: BLE001 after a defect of ours nobody may wait for ever
            for run in (*self._given, *self._asked):
                run.fail(error)
            self._given, self._asked = deque(), deque()

    async def _give(self) -> None:
        """Sends all waiting runs to the worker; returns after at least one has ended."""
        if why_not := self._why_not():
            while self._given:
                run = self._given.popleft()
                run.end(why_not(run.check))
            return
        try:
            child = await self._living()
            given_s = time.monotonic()
            child.writer.write(b"".join(self._lines()))  # in one write: each one is a system call and wakes the worker
            while self._given:
                await self._receive(child, given_s)
                given_s = time.monotonic()
        except TimeoutError:
            await self._hung()
        except StartFailed as error:
            self._back_off()
            run = self._given.popleft()
            run.end(Result(run.check.name, Outcome.BROKEN, why=str(error), ran=False))
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            await self._crashed(error)

    def _why_not(self) -> Callable[[Check[Any, Any]], Result] | None:
        """The result of runs while there can be no worker; None while there can be one."""
        if self.abandoned:
            return self._waits_behind
        if (wait_s := self._not_before_s - time.monotonic()) <= 0:
            return None
        why = f"the {self.name} worker failed {self._failures} times in a row; the next starts in {wait_s:.0f} s"
        return lambda check: Result(check.name, Outcome.BROKEN, why=why, ran=False)

    async def _living(self) -> WorkerProcess:
        if self.child is None:
            self.child = await self._server.start(self.name)
            self._sent_setup = None
            self.abandoned_programs = 0
        return self.child

    def _lines(self) -> Iterator[bytes]:
        """The messages for the worker: the setup, where it has changed, and the runs."""
        if self._sent_setup is not self.setup:
            self._sent_setup = self.setup
            yield msgspec.json.encode(self.setup) + b"\n"
        for run in self._given:
            request = Request(run.id, run.check.name, run.records, msgspec.Raw(run.memory or b"null"))
            yield msgspec.json.encode(request) + b"\n"

    async def _receive(self, child: WorkerProcess, since_s: float) -> None:
        """Receives the next answer. Raises TimeoutError once the run under way has exceeded its time."""
        loop = asyncio.get_running_loop()
        # The worker may keep the first answers while it hangs in a later run, which has a limit of its own.
        look_s = min(run.check.timeout_s for run in self._given)
        limit_s = since_s + look_s
        while True:
            try:
                async with asyncio.timeout_at(loop.time() + limit_s - time.monotonic()):
                    line = await child.reader.readline()
                break
            except TimeoutError:
                run, began_s = self._under_way(child)
                ends_s = (began_s or since_s) + run.check.timeout_s
                if ends_s <= time.monotonic():
                    raise
                limit_s = min(ends_s, time.monotonic() + look_s)
        if not line.endswith(b"\n"):
            raise EOFError("the worker closed its end")
        reply = self._replies.decode(line)
        if reply.id != self._given[0].id:
            raise ValueError(f"answer {reply.id} to request {self._given[0].id}")
        self._failures = 0
        self.abandoned_programs = reply.abandoned_programs
        run = self._given.popleft()
        run.end(_result(run.check.name, reply))

    def _under_way(self, child: WorkerProcess) -> tuple[_Run, float]:
        """The run that the worker says it is at, and its start; else the first run, with start 0."""
        running, began_s = child.doing.running()
        found = next((run for run in self._given if run.id == running), None)
        return (found, began_s) if found else (self._given[0], 0.0)

    async def _hung(self) -> None:
        """Collects evidence, then kills the worker. A worker that stays is abandoned and watched, never waited for."""
        child = self.child
        assert child is not None
        run, began_s = self._under_way(child)
        waited_s = time.monotonic() - began_s if began_s else run.check.timeout_s
        doing = child.doing.text() or f"check {run.check.name}"
        seen = hang.evidence(child.pid, doing, waited_s)
        self._end_worker(child, run)
        if await within(child.ended.wait(), KILL_LIMIT_S):
            child.forget()
        else:
            self.abandoned = Abandoned(self.name, child.pid, run.check.name, doing, time.monotonic())
            self._watch = asyncio.get_running_loop().create_task(self._until_free(child))
        found = hang.finding(run.check, seen, self._failures)
        why = f"no answer for {waited_s:.1f} s while at: {doing}"
        run.end(Result(run.check.name, Outcome.HUNG, (found,), why=why, took_ms=round(waited_s * 1000, 3)))

    def _end_worker(self, child: WorkerProcess, run: _Run) -> None:
        """Only this run fails. Runs before it, whose answers are lost, and runs after it are sent again."""
        self._given.remove(run)
        self.child = None
        child.kill()
        self._back_off()

    async def _until_free(self, child: WorkerProcess) -> None:
        try:
            await child.ended.wait()
        finally:
            child.forget()
        self.abandoned = None
        self._not_before_s = 0.0  # the call has returned: the device may work again
        self._on_free(self.name)

    async def _crashed(self, error: Exception) -> None:
        child = self.child
        assert child is not None
        doing = child.doing.text()
        run, _ = self._under_way(child)
        self._end_worker(child, run)
        if await within(child.ended.wait(), KILL_LIMIT_S):
            await within(child.status_known.wait(), STATUS_LIMIT_S)
        child.forget()
        how = child.how_it_ended() if isinstance(error, (EOFError, OSError)) else f"sent a wrong answer ({error})"
        why = f"the {self.name} worker {how} while at: {doing}"
        run.end(Result(run.check.name, Outcome.BROKEN, why=why))

    def _waits_behind(self, check: Check[Any, Any]) -> Result:
        assert self.abandoned is not None
        behind = self.abandoned
        why = f"not run: the {self.name} worker (pid {behind.pid}) hangs in {behind.check} at: {behind.doing}"
        waited_s = time.monotonic() - behind.since_s
        # Only the check that hangs says so again, once the hang lasts: it is one fault, whatever waits behind it.
        lasts = check.name == behind.check and waited_s >= hang.LASTING_S
        found = (hang.finding(check, hang.evidence(behind.pid, behind.doing, waited_s)),) if lasts else ()
        return Result(check.name, Outcome.HUNG, found, why=why, ran=False)

    def _back_off(self) -> None:
        wait_s = BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]
        self._failures += 1
        self._not_before_s = time.monotonic() + wait_s

    async def stop(self) -> None:
        """Cancels the runs that wait, and leaves an abandoned worker to the kernel."""
        tasks = [task for task in (self._work, self._watch) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in (*self._given, *self._asked):
            run.result.cancel()


def _result(check: str, reply: Reply) -> Result:
    return Result(
        check,
        reply.outcome,
        reply.findings,
        cleared=reply.cleared,
        why=reply.why or (reply.forgot and f"started without its memory: {reply.forgot}"),
        memory=bytes(reply.memory),
        took_ms=reply.took_ms,
        excluded=reply.excluded,
    )


async def within(waiting: Any, limit_s: float) -> bool:
    """Whether it ended within the time."""
    try:
        await asyncio.wait_for(waiting, limit_s)
    except TimeoutError:
        return False
    return True
