"""Keeps one worker a device class: deadlines, hangs, back-off. The event loop never blocks here."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from nodetriage.agent import hang
from nodetriage.agent.children import Child, ForkServer, StartFailed
from nodetriage.agent.config import AgentSettings
from nodetriage.agent.run import Result
from nodetriage.agent.worker import Reply, Request, Setup
from nodetriage.checks.model import Check, KernelRecord, Outcome

KILL_LIMIT_S = 0.5  # a process that has not died by then is in the kernel's hands
BACK_OFF_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # before the next start, by failures in a row


Records = tuple[KernelRecord, ...] | None  # None: the worker reads the log itself


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A worker that SIGKILL did not end: it sleeps uninterruptibly in the kernel."""

    device_class: str
    pid: int
    check: str
    doing: str
    since_s: float  # monotonic


def setup_from(settings: AgentSettings) -> Setup:
    """What the workers must know of the settings."""
    policies = {name: dict(one.overrides) for name, one in settings.checks.items()}
    return Setup(str(settings.agent.root), policies, programs=settings.programs.by_name())


class Workers:
    """`on_free` is called with a device class when its abandoned worker has died at last."""

    def __init__(self, setup: Setup, catalogue: str, on_free: Callable[[str], None]) -> None:
        self._server = ForkServer(catalogue)
        self._setup = setup
        self._on_free = on_free
        self._classes: dict[str, _DeviceClass] = {}
        self._runs: set[asyncio.Task[Result]] = set()

    async def run(self, check: Check[Any, Any], records: Records = (), memory: bytes | None = None) -> Result:
        """One run of the check in its class's worker. `memory` and the result's are JSON. Never raises, never late.

        A caller that is cancelled leaves the run to end by itself: its answer must not be taken for the next one's.
        """
        run = asyncio.get_running_loop().create_task(self._class(check.worker).run(check, records, memory))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)
        return await asyncio.shield(run)

    def configure(self, setup: Setup) -> None:
        """New settings, from the next run on. What is in quarantine stays there."""
        self._setup = msgspec.structs.replace(setup, quarantined=self._setup.quarantined)
        for device_class in self._classes.values():
            device_class.setup = self._setup

    def quarantine(self, addresses: tuple[str, ...]) -> None:
        """No worker asks these GPUs anything, from the next run on."""
        if addresses != self._setup.quarantined:
            self._setup = msgspec.structs.replace(self._setup, quarantined=addresses)
            self.configure(self._setup)

    @property
    def abandoned(self) -> tuple[Abandoned, ...]:
        return tuple(c.abandoned for c in self._classes.values() if c.abandoned)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by device class, the fork server's under "forkserver"."""
        living = {name: c.child.pid for name, c in self._classes.items() if c.child}
        return {"forkserver": self._server.pid, **living}

    async def close(self) -> None:
        """Kills all; waits no longer than KILL_LIMIT_S for any."""
        await asyncio.gather(*(c.watch_no_more() for c in self._classes.values()))
        children = [c.child for c in self._classes.values() if c.child]
        if children:
            await _within(asyncio.gather(*(c.ended.wait() for c in children)), KILL_LIMIT_S)
        for run in self._runs:
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)
        for child in children:
            child.forget()
        self._server.stop()

    def _class(self, name: str) -> "_DeviceClass":
        if name not in self._classes:
            self._classes[name] = _DeviceClass(name, self._server, self._setup, self._on_free)
        return self._classes[name]


class _DeviceClass:
    def __init__(self, name: str, server: ForkServer, setup: Setup, on_free: Callable[[str], None]) -> None:
        self.name = name
        self.child: Child | None = None
        self.abandoned: Abandoned | None = None
        self.setup = setup
        self._told: Setup | None = None  # what the living worker was told
        self._server = server
        self._on_free = on_free
        self._ids = itertools.count(1)
        self._turn = asyncio.Lock()
        self._failures = 0
        self._not_before_s = 0.0
        self._watch: asyncio.Task[None] | None = None
        self._replies = msgspec.json.Decoder(Reply)

    async def run(self, check: Check[Any, Any], records: Records, memory: bytes | None) -> Result:
        async with self._turn:
            if self.abandoned:
                return self._waits_behind(check)
            if (wait_s := self._not_before_s - time.monotonic()) > 0:
                why = (
                    f"the {self.name} worker failed {self._failures} times in a row; it starts again in {wait_s:.0f} s"
                )
                return Result(check.name, Outcome.BROKEN, why=why)
            started_s = time.monotonic()
            try:
                child = await self._living()
                async with asyncio.timeout(check.timeout_s):
                    return await self._ask(child, check, records, memory)
            except TimeoutError:
                return await self._hung(check, started_s)
            except StartFailed as error:
                self._back_off()
                return Result(check.name, Outcome.BROKEN, why=str(error))
            except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
                return await self._crashed(check, error)

    async def _living(self) -> Child:
        if self.child is None:
            self.child = await self._server.start(self.name)
            self._told = None
        if self._told is not self.setup:
            self.child.writer.write(msgspec.json.encode(self.setup) + b"\n")
            self._told = self.setup
        return self.child

    async def _ask(self, child: Child, check: Check[Any, Any], records: Records, memory: bytes | None) -> Result:
        request = Request(next(self._ids), check.name, records, msgspec.Raw(memory or b"null"))
        child.writer.write(msgspec.json.encode(request) + b"\n")
        await child.writer.drain()
        line = await child.reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("no answer")
        reply = self._replies.decode(line)
        if reply.id != request.id:
            raise ValueError(f"answer {reply.id} to request {request.id}")
        self._failures = 0
        why = reply.why or (reply.forgot and f"started without its memory: {reply.forgot}")
        return Result(
            check.name,
            reply.outcome,
            reply.findings,
            cleared=reply.cleared,
            why=why,
            memory=bytes(reply.memory),
            took_ms=reply.took_ms,
            left_alone=reply.left_alone,
        )

    async def _hung(self, check: Check[Any, Any], started_s: float) -> Result:
        """Evidence first, then the kill; a worker that stays is abandoned and watched, never waited for."""
        child = self.child
        assert child is not None
        waited_s = time.monotonic() - started_s
        doing = child.doing.text() or f"check {check.name}"
        seen = hang.evidence(child.pid, doing, waited_s)
        self.child = None
        child.kill()
        self._back_off()
        if await _within(child.ended.wait(), KILL_LIMIT_S):
            child.forget()
        else:
            self.abandoned = Abandoned(self.name, child.pid, check.name, doing, time.monotonic())
            self._watch = asyncio.get_running_loop().create_task(self._until_free(child))
        found = hang.finding(check, seen)
        why = f"no answer for {waited_s:.1f} s while at: {doing}"
        return Result(check.name, Outcome.HUNG, (found,), why=why, took_ms=round(waited_s * 1000, 3))

    async def _until_free(self, child: Child) -> None:
        try:
            await child.ended.wait()
        finally:
            child.forget()
        self.abandoned = None
        self._not_before_s = 0.0  # the call has returned: look at once
        self._on_free(self.name)

    async def _crashed(self, check: Check[Any, Any], error: Exception) -> Result:
        child = self.child
        assert child is not None
        doing = child.doing.text()
        self.child = None
        child.kill()
        self._back_off()
        await _within(child.ended.wait(), KILL_LIMIT_S)
        for _ in range(10):  # the status comes by another way than the end itself
            if child.status is not None:
                break
            await asyncio.sleep(0.01)
        child.forget()
        how = child.how_it_ended() if isinstance(error, (EOFError, OSError)) else f"answered nonsense ({error})"
        return Result(check.name, Outcome.BROKEN, why=f"the {self.name} worker {how} while at: {doing}")

    def _waits_behind(self, check: Check[Any, Any]) -> Result:
        assert self.abandoned is not None
        behind = self.abandoned
        why = f"not looked: the {self.name} worker (pid {behind.pid}) hangs in {behind.check} at: {behind.doing}"
        return Result(check.name, Outcome.HUNG, why=why)

    def _back_off(self) -> None:
        wait_s = BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]
        self._failures += 1
        self._not_before_s = time.monotonic() + wait_s

    async def watch_no_more(self) -> None:
        """Leaves an abandoned worker to the kernel, and kills the living one."""
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self.child:
            self.child.kill()


async def _within(waiting: Any, limit_s: float) -> bool:
    try:
        await asyncio.wait_for(waiting, limit_s)
    except TimeoutError:
        return False
    return True
