"""The loop around the pure policy: stored events in, recorded actions out, and each action done through the scheduler.

One task owns the state and takes everything through one inbox; another does what was recorded. Both write through the
store's writer, so a kill at any point leaves either all of a step or none of it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

import structlog
from sqlalchemy import Connection

from nodetriage.controller import actions, ledger, policy
from nodetriage.controller.rules import Authority, Policy
from nodetriage.controller.scheduler import Scheduler, SchedulerError, SchedulerRefused
from nodetriage.controller.state import (
    Action,
    ActionDone,
    ActionKind,
    DrainStatus,
    Event,
    FleetState,
    NodeEvent,
    OperatorCommand,
    SchedulerSeen,
    Step,
    Tick,
    Transition,
)
from nodetriage.controller.store import StoreError
from nodetriage.service.crashpoint import passing

T = TypeVar("T")
log = structlog.get_logger("brain")

EVENTS_AT_ONCE = 500
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0


class Writes(Protocol):
    """What the brain needs of the store."""

    async def write(self, work: Callable[[Connection], T]) -> T: ...

    async def read(self, work: Callable[[Connection], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class _Letter:
    event: Event
    taken: "asyncio.Future[None]"


class Brain:
    """Run `run()` as a task; call `notify()` whenever events were stored."""

    def __init__(
        self,
        store: Writes,
        scheduler: Scheduler,
        rules: Policy,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        tick_s: float = 1.0,
        scan_s: float = 60.0,
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._rules = with_scheduler(rules, scheduler)
        self._clock = clock
        self._tick_s = tick_s
        self._scan_s = scan_s
        self._state = FleetState()
        self._inbox: list[_Letter] = []
        self._weigh_all = True
        self._wake = asyncio.Event()
        self._act = asyncio.Event()
        self._scan = asyncio.Event()

    @property
    def state(self) -> FleetState:
        """As of the last committed step."""
        return self._state

    def notify(self) -> None:
        """There are new events in the store. Must be called on the loop that runs the brain."""
        self._wake.set()

    def set_policy(self, rules: Policy) -> None:
        """From the next step on."""
        self._rules = with_scheduler(rules, self._scheduler)
        self._weigh_all = True
        self._wake.set()

    async def command(self, command: OperatorCommand) -> None:
        """Returns when its step is on disk."""
        await self._post(command)

    async def run(self) -> None:
        """Until cancelled. Raises what the database says when even its first reading fails."""
        self._state = await self._store.read(ledger.load)
        log.info("brain started", cursor=self._state.cursor, nodes=len(self._state.nodes), acts=self._scheduler.acts)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._think(), name="brain-think")
            if self._scheduler.acts:
                group.create_task(self._perform(), name="brain-perform")
                group.create_task(self._look(), name="brain-look")

    async def _think(self) -> None:
        """Owns the state: the only place where it changes."""
        next_tick = 0.0
        while True:
            self._wake.clear()
            try:
                while self._inbox or await self._take_events():
                    await self._take_inbox()
                if asyncio.get_running_loop().time() >= next_tick:
                    thorough, self._weigh_all = self._weigh_all, False
                    await self._apply([Tick(thorough)])
                    next_tick = asyncio.get_running_loop().time() + self._tick_s
            except StoreError as error:
                log.error("step not stored, trying again", error=str(error))
                await asyncio.sleep(RETRY_FIRST_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, next_tick - asyncio.get_running_loop().time())):
                    await self._wake.wait()

    async def _take_inbox(self) -> None:
        while self._inbox:
            letter = self._inbox[0]
            await self._apply([letter.event])
            self._inbox.pop(0)
            if not letter.taken.done():
                letter.taken.set_result(None)

    async def _take_events(self) -> bool:
        cursor = self._state.cursor
        events = await self._store.read(lambda c: ledger.events_after(c, cursor, EVENTS_AT_ONCE))
        if events:
            await self._apply(events)
        return bool(events)

    async def _apply(self, events: Sequence[Event]) -> None:
        """Steps through the events and stores all that came of them in one transaction. Raises StoreError."""
        now, before = self._clock(), self._state
        state = before
        asked: list[Action] = []
        moved: list[Transition] = []
        for event in events:
            try:
                step = policy.step(state, event, now, self._rules)
            except Exception:  # the loop's boundary: one event must not stop what protects the fleet
                log.exception("event not weighed, going on without it", happened=repr(event)[:500])
                step = Step(replace(state, cursor=event.id) if isinstance(event, NodeEvent) else state)
            state = step.state
            asked += step.actions
            moved += step.transitions
        done = [e for e in events if isinstance(e, ActionDone)]
        if state is before and not asked and not moved and not done:
            return
        whole = Step(state, tuple(asked), tuple(moved))

        def write(connection: Connection) -> None:
            for event in done:
                ledger.finish(connection, event, now)
            ledger.save(connection, before, whole, now)

        if asked:
            passing("brain.before_commit")
        await self._store.write(write)
        if asked:
            passing("brain.after_commit")
        self._state = state
        self._tell(whole)
        if asked:
            self._act.set()

    def _tell(self, step: Step) -> None:
        for t in step.transitions:
            log.info("node state", node=t.node, before=t.before or "", after=str(t.after), cause=t.cause, actor=t.actor)
        for a in step.actions:
            say = log.warning if a.kind is ActionKind.NOTIFY else log.info
            say("decided", action=a.id, kind=str(a.kind), node=a.node, job=a.job, fault=a.fault, text=a.text)

    async def _post(self, event: Event) -> None:
        letter = _Letter(event, asyncio.get_running_loop().create_future())
        self._inbox.append(letter)
        self._wake.set()
        await letter.taken

    async def _perform(self) -> None:
        """Does what was recorded, one thing after the other, the worst first."""
        while True:
            self._act.clear()
            try:
                intents = await self._store.read(lambda c: ledger.due(c, self._clock(), 1))
                for intent in intents:
                    await self._try(intent)
            except StoreError as error:
                log.error("action not stored, trying again", error=str(error))
                await asyncio.sleep(RETRY_FIRST_S)
                continue
            if not intents:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._tick_s):
                        await self._act.wait()

    async def _try(self, intent: ledger.Intent) -> None:
        action = intent.action
        if action.kind is ActionKind.UNDRAIN and (why := await self._called_off(action)):
            await self._store.write(lambda c: ledger.cancel(c, action, why, self._clock()))
            log.info("action cancelled", action=action.id, why=why)
            return
        if intent.in_doubt:
            log.warning("action in doubt, looking first", action=action.id, attempts=intent.attempts)
        passing("action.before_start")
        await self._store.write(lambda c: ledger.start(c, action, self._clock()))
        passing("action.after_start")
        try:
            done = await actions.perform(action, self._scheduler)
        except SchedulerError as error:
            await self._again(intent, error)
            return
        except Exception as error:  # the loop's boundary: one action must not keep the others undone
            log.exception("action broke, trying again", action=action.id)
            await self._again(intent, SchedulerRefused(f"{type(error).__name__}: {error}"))
            return
        passing("action.before_done")
        await self._post(done)
        log.info("action done", action=action.id, node=action.node, outcome=str(done.outcome), text=done.text)
        self._scan.set()

    async def _again(self, intent: ledger.Intent, error: SchedulerError) -> None:
        # A refusal will not change by itself within seconds.
        first = RETRY_MOST_S / 4 if isinstance(error, SchedulerRefused) else RETRY_FIRST_S
        wait_s = min(RETRY_MOST_S, first * 2 ** min(intent.attempts, 16))
        at = self._clock() + timedelta(seconds=wait_s)
        log.warning("action not done", action=intent.action.id, why=str(error), again_in_s=wait_s)
        await self._store.write(lambda c: ledger.retry(c, intent.action, str(error), at))

    async def _called_off(self, action: Action) -> str:
        """Why a recorded undrain is not to be done any more; "" if it is."""
        await self._post(Tick())  # the step that recorded it may not have ended yet
        node = self._state.nodes.get(action.node)
        drain = node.drain if node else None
        if drain and drain.incident == action.incident and drain.status is DrainStatus.RETURNING:
            return ""
        return "a fault came back first"

    async def _look(self) -> None:
        """Reads the scheduler's nodes at the start, soon after each action, and from time to time."""
        while True:
            self._scan.clear()
            read_at = self._clock()
            try:
                nodes = await self._scheduler.nodes()
            except SchedulerError as error:
                log.warning("scheduler not read", why=str(error))
            else:
                await self._post(SchedulerSeen(read_at, nodes))
            await asyncio.sleep(self._tick_s)  # however many actions: at most one reading a tick
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._scan_s):
                    await self._scan.wait()


def with_scheduler(rules: Policy, scheduler: Scheduler) -> Policy:
    """Without a scheduler nothing can be done, so everything is recorded as what would have been."""
    return rules if scheduler.acts else replace(rules, authority=Authority.OBSERVE)
