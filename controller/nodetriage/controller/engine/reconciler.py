"""The loop around the pure policy: stored events in, recorded actions out.

One task owns the state and takes everything through one inbox; executor.py does what was recorded, poller.py reads the
scheduler. All write through the store's writer, so a kill at any point leaves either all of a step or none of it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog
from sqlalchemy import Connection

from nodetriage.controller.engine import check_reports, inputs, overtaking
from nodetriage.controller.engine.executor import RETRY_FIRST_S, Executor
from nodetriage.controller.engine.guarded_step import log_step, steps
from nodetriage.controller.engine.poller import Places, Poller
from nodetriage.controller.engine.writes import Writes
from nodetriage.controller.policy.state import (
    ActionDone,
    ContactChanged,
    Event,
    FleetState,
    NodeEvent,
    OperatorCommand,
    Step,
    Tick,
)
from nodetriage.controller.scheduler import Scheduler
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import action_queue, state_store
from nodetriage.controller.store.mappers import Seen
from nodetriage.controller.store.store import StoreError
from nodetriage.service.crashpoint import passing
from nodetriage.v1 import health_pb2

T = TypeVar("T")
log = structlog.get_logger("reconciler")

EVENTS_AT_ONCE = 1000
IN_A_THREAD = 20  # events from which on a batch leaves the loop
SCHEDULER_ASKED_WITHIN_S = 10.0  # about silent nodes; then they are silent without its word
STEP = timedelta(seconds=5)  # of the wall clock: more than it is slewed by between two ticks
SNAPSHOT_EVERY = timedelta(days=1)
NOTHING_SHARED: Places = {}


@dataclass(frozen=True, slots=True)
class _Message:
    event: Event
    taken: "asyncio.Future[Step]"


class Reconciler:
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
        places: Places = NOTHING_SHARED,
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._rules = with_scheduler(rules, scheduler)
        self._coming: Policy | None = self._rules  # is in force as soon as it is recorded among the inputs
        self._clock = clock
        self._tick_s = tick_s
        self._state = FleetState()
        self._inbox: list[_Message] = []
        self._weigh_all = True
        self._wake = asyncio.Event()
        self._lead: datetime | None = None  # of the wall clock over the monotonic one, at the last tick
        self._settled = asyncio.Event()  # cleared while a step is made and on its way to the disk
        self._settled.set()
        self._next_tick_s = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self.overtaking = overtaking.Overtaking()
        self._recorder = inputs.Recorder()
        self._snapshot_at: datetime | None = None
        self.broken_invariants = 0  # since the start
        self.on_state: Callable[[FleetState, Policy], None] = lambda state, policy: None  # after each change of either
        self.poller = Poller(self, scheduler, tick_s, scan_s, places)
        self._executor = Executor(self, scheduler, tick_s, self.poller)

    @property
    def state(self) -> FleetState:
        """As of the last committed step."""
        return self._state

    @property
    def rules(self) -> Policy:
        """The policy in force."""
        return self._rules

    def now(self) -> datetime:
        return self._clock()

    def notify(self) -> None:
        """There are new events in the store. Call it on the loop that runs the reconciler."""
        self._wake.set()

    def set_policy(self, rules: Policy) -> None:
        """From the next step on."""
        self._coming = with_scheduler(rules, self._scheduler)
        self._wake.set()

    async def command(self, command: OperatorCommand) -> Step:
        return await self.post(command)

    async def contact(self, lost: Sequence[str], back: Sequence[str]) -> None:
        """Agents that fell silent, and agents that report again.

        Before the policy gets their silence, the poller reads the scheduler: a node may sleep, or be in maintenance.
        """
        if lost and self._scheduler.acts:
            await self.poller.looked(SCHEDULER_ASKED_WITHIN_S)
        await self.post(ContactChanged(tuple(lost), tuple(back)))
        self.poller.wake()

    async def checks_heard(self, heard: Callable[[str], Seen | None]) -> None:
        """Reports to the policy what heartbeats say of drained nodes. Call it every second or so."""
        for report in check_reports.reports(self._state, heard):
            await self.post(report)

    async def run(self) -> None:
        """Until cancelled. Raises what the database says when even its first reading fails."""
        self._state = await self.read(state_store.load)
        waiting, newest = await self.read(lambda c: overtaking.waiting_after(c, self._state.cursor))
        self.overtaking.hear(waiting, newest)
        log.info(
            "reconciler started", cursor=self._state.cursor, nodes=len(self._state.nodes), acts=self._scheduler.acts
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconcile(), name="reconcile")
            if self._scheduler.acts:
                group.create_task(self._executor.run(), name="execute")
                group.create_task(self.poller.run(), name="poll-nodes")
                group.create_task(self.poller.run_jobs(), name="poll-jobs")

    async def settled(self) -> None:
        """Returns when `state` contains every step that is on disk."""
        await self._settled.wait()

    async def post(self, event: Event) -> Step:
        """Puts an event into the inbox; returns when its step is on disk."""
        letter = _Message(event, asyncio.get_running_loop().create_future())
        self._inbox.append(letter)
        self._wake.set()
        return await letter.taken

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._store.read(work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        return await self._store.write(work)

    async def record(self, node: str, events: list[health_pb2.Event]) -> None:
        """Stores what the controller itself saw of a node."""
        await self._store.record(node, events, state_store.to_us(self.now()))
        self.notify()

    async def _reconcile(self) -> None:
        """Owns the state: the only place where it changes."""
        while True:
            self._wake.clear()
            try:
                if await self._turn():
                    continue
            except StoreError as error:
                log.error("step not stored, trying again", error=str(error))
                await asyncio.sleep(RETRY_FIRST_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, self._next_tick_s - asyncio.get_running_loop().time())):
                    await self._wake.wait()

    async def _turn(self) -> bool:
        """All that is due and one batch of events, so that no backlog keeps time, orders or a new policy waiting.

        False where nothing is left to take.
        """
        await self._keep_policy()
        await self._take_inbox()
        if asyncio.get_running_loop().time() >= self._next_tick_s:
            thorough, self._weigh_all = self._weigh_all or self._clock_stepped(), False
            await self._apply([Tick(thorough)])
            self._next_tick_s = asyncio.get_running_loop().time() + self._tick_s
        took = self.poller.has_looked() and await self._take_events()
        return took or bool(self._inbox)

    def _clock_stepped(self) -> bool:
        """Since the last call, against the monotonic clock: then every hold time is looked at again."""
        lead = self._clock() - timedelta(seconds=asyncio.get_running_loop().time())
        before, self._lead = self._lead, lead
        return before is not None and abs(lead - before) > STEP

    async def _keep_policy(self) -> None:
        """A replay needs the policy that was in force, and now and then the whole memory to begin from."""
        now, coming = self.now(), self._coming
        stale = self._snapshot_at is None or now - self._snapshot_at >= SNAPSHOT_EVERY
        if coming is None and not stale:
            return
        rules = coming or self._rules
        rows = [inputs.snapshot_row(self._state, now)] if stale else []
        rows.append(inputs.policy_row(rules, now))
        await self.write(lambda c: inputs.add(c, rows))
        self._rules, self._weigh_all = rules, self._weigh_all or coming is not None
        self.on_state(self._state, rules)
        if self._coming is coming:
            self._coming = None
        if stale:
            self._snapshot_at = now
            self._recorder = inputs.Recorder()  # a replay from here has no reading before

    async def _take_inbox(self) -> None:
        for _ in range(len(self._inbox)):
            letter = self._inbox[0]
            step = await self._apply([letter.event])
            self._inbox.pop(0)
            if not letter.taken.done():
                letter.taken.set_result(step)

    async def _take_events(self) -> bool:
        """The critical findings that wait behind more than one batch, then the next batch."""
        cursor = self._state.cursor
        if waiting := self.overtaking.take(cursor + EVENTS_AT_ONCE):
            await self._take_batch(await self.read(lambda c: overtaking.events_of(c, waiting, cursor)))
        return await self._take_batch(await self.read(lambda c: inputs.events_after(c, cursor, EVENTS_AT_ONCE)))

    async def _take_batch(self, events: list[NodeEvent]) -> bool:
        if events:
            await self._apply(events)
            self.poller.note(events)
        return bool(events)

    async def _apply(self, events: Sequence[Event]) -> Step:
        """Steps through the events and stores all that came of them in one transaction. Raises StoreError."""
        self._settled.clear()
        try:
            return await self._store_steps(events)
        finally:
            self._settled.set()

    async def _store_steps(self, events: Sequence[Event]) -> Step:
        now, before = self._clock(), self._state
        whole, broken = await self._step(before, events, now)
        self.broken_invariants += broken
        done = [e for e in events if isinstance(e, ActionDone)]
        asked = whole.actions
        effect = whole.state is not before or bool(asked or whole.transitions or whole.notices or done)
        told = self._recorder.rows(events, now, effect)
        if not effect and not told:
            return whole

        def write(connection: Connection) -> None:
            for event in done:
                action_queue.finish(connection, event, now)
            inputs.add(connection, told)
            if effect:
                state_store.save(connection, before, whole, now, whole.touched)

        if asked:
            passing("reconciler.before_commit")
        await self.write(write)
        if asked:
            passing("reconciler.after_commit")
        self._recorder.kept(events)
        self._state = whole.state
        self.on_state(self._state, self._rules)
        log_step(whole)
        if asked:
            self._executor.wake()
        if before.breaker.outage_since is not None and whole.state.breaker.outage_since is None:
            self._executor.retry_now()
        return whole

    async def _step(self, before: FleetState, events: Sequence[Event], now: datetime) -> tuple[Step, int]:
        """A large batch is computed in a thread: the loop that serves the agents goes on meanwhile."""
        if len(events) < IN_A_THREAD:
            return steps(before, events, now, self._rules)
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._thread, steps, before, events, now, self._rules)


def with_scheduler(rules: Policy, scheduler: Scheduler) -> Policy:
    """Without a scheduler nothing can be done, so everything is recorded as what would have been."""
    return rules if scheduler.acts else replace(rules, mode=Mode.OBSERVE)
