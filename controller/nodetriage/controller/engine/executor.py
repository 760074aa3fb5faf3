"""Does what was recorded: one thing after the other, drains and the worst first, each looked at again just before."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from nodetriage.controller.engine import actions
from nodetriage.controller.engine.poller import Poller
from nodetriage.controller.policy.liveness import AGENT_SILENT, NODE_LOST
from nodetriage.controller.policy.preconditions import Rechecked, Then, recheck
from nodetriage.controller.policy.state import Action, ActionDone, ActionKind, Event, FleetState, SchedulerFailed
from nodetriage.controller.scheduler import Scheduler, SchedulerError, SchedulerRefused
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.store import action_queue
from nodetriage.controller.store.store import StoreError
from nodetriage.service.crashpoint import passing

log = structlog.get_logger("reconciler")

RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0
NOT_VOUCHED = Rechecked(Then.WAIT, "its agent has not said since the controller's start what is open")
_OUT = (ActionKind.DRAIN, ActionKind.REQUEUE, ActionKind.CANCEL)  # what takes work from a node
NOT_COMPARED = Rechecked(Then.WAIT, "the scheduler has not been read since the node first reported")
LOOK_AGAIN_S = 15.0  # at what waits for the breaker, or for a fleet incident's end


class Reconciling(Protocol):
    """What the executor needs of the reconciler."""

    @property
    def state(self) -> FleetState: ...

    @property
    def rules(self) -> Policy: ...

    def now(self) -> datetime: ...

    async def settled(self) -> None: ...

    async def post(self, event: Event) -> Any: ...

    async def read(self, work: Callable[[Any], Any]) -> Any: ...

    async def write(self, work: Callable[[Any], Any]) -> Any: ...


class Executor:
    """Run `run()` as a task; call `wake()` when there is something new to do."""

    def __init__(self, mind: Reconciling, scheduler: Scheduler, tick_s: float, poller: Poller) -> None:
        self._reconciler, self._scheduler, self._tick_s, self._poller = mind, scheduler, tick_s, poller
        self._due = asyncio.Event()
        self._retry_now = False

    def wake(self) -> None:
        self._due.set()

    def retry_now(self) -> None:
        """The scheduler answers again: what waits for a further try is tried at once."""
        self._retry_now = True
        self._due.set()

    async def run(self) -> None:
        # What happened in the scheduler while no controller ran (a MAINT reservation) is to be known first.
        await self._poller.first_look.wait()
        while True:
            self._due.clear()
            try:
                if self._retry_now:
                    await self._reconciler.write(lambda c: action_queue.retry_now(c, self._reconciler.now()))
                    self._retry_now = False
                intents = await self._reconciler.read(lambda c: action_queue.due(c, self._reconciler.now(), 1))
                for intent in intents:
                    await self._try(intent)
            except StoreError as error:
                log.error("action not stored, trying again", error=str(error))
                await asyncio.sleep(RETRY_FIRST_S)
                continue
            if not intents:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._tick_s):
                        await self._due.wait()

    async def _try(self, intent: action_queue.Intent) -> None:
        action = intent.action
        if not await self._still_wanted(intent):
            return
        if intent.in_doubt:
            log.warning("action in doubt, looking first", action=action.id, attempts=intent.attempts)
        passing("action.before_start")
        await self._reconciler.write(lambda c: action_queue.start(c, action, self._reconciler.now()))
        passing("action.after_start")
        await self._guarded(intent, actions.perform(action, self._scheduler))

    async def _still_wanted(self, intent: action_queue.Intent) -> bool:
        """Puts off or calls off what is not to be done now. What may have been done already is looked at first."""
        action = intent.action
        await self._reconciler.settled()  # the step that recorded the action may not be in `state` yet
        compared = action.kind not in _OUT or await self._poller.compare(action.node)
        checked = recheck(self._reconciler.state, action, self._reconciler.now(), self._reconciler.rules)
        wait_s = LOOK_AGAIN_S
        if checked.then is Then.DO and not compared:
            checked, wait_s = NOT_COMPARED, self._tick_s
        if checked.then is Then.DO and self._rests_on_its_agent(action) and not self._poller.vouched(action.node):
            checked, wait_s = NOT_VOUCHED, self._tick_s
        if checked.then is Then.DO:
            return True
        if checked.then is Then.WAIT:
            again = self._reconciler.now() + timedelta(seconds=wait_s)
            await self._reconciler.write(lambda c: action_queue.put_off(c, action, checked.why, again))
        else:
            off = actions.call_off(action, checked.why, self._scheduler, tried=intent.attempts > 0)
            await self._guarded(intent, off)
        return False

    def _rests_on_its_agent(self, action: Action) -> bool:
        """A drain for what was known before the start, and that nobody ordered and no controller or hook saw."""
        if action.kind is not ActionKind.DRAIN or action.job or action.fault in (NODE_LOST, AGENT_SILENT):
            return False
        node = self._reconciler.state.nodes.get(action.node)
        if node is None or node.drain is None or node.drain.ordered_by:
            return False
        causes = node.drain.causes
        return all(f.known_at < self._poller.began_at for f in node.open_findings if f.fault in causes)

    async def _guarded(self, intent: action_queue.Intent, doing: Awaitable[ActionDone]) -> None:
        action = intent.action
        try:
            done = await doing
        except SchedulerError as error:
            await self._again(intent, error)
            return
        except Exception as error:  # the loop's boundary: one action must not keep the others undone
            log.exception("action broke, trying again", action=action.id)
            await self._again(intent, SchedulerRefused(f"{type(error).__name__}: {error}"))
            return
        passing("action.before_done")
        await self._reconciler.post(done)
        log.info("action done", action=action.id, node=action.node, outcome=str(done.outcome), text=done.text)
        self._poller.wake()

    async def _again(self, intent: action_queue.Intent, error: SchedulerError) -> None:
        # A refusal will not change by itself within seconds.
        first = RETRY_MOST_S / 4 if isinstance(error, SchedulerRefused) else RETRY_FIRST_S
        wait_s = min(RETRY_MOST_S, first * 2 ** min(intent.attempts, 16))
        at = self._reconciler.now() + timedelta(seconds=wait_s)
        log.warning("action not done", action=intent.action.id, why=str(error), again_in_s=wait_s)
        await self._reconciler.write(lambda c: action_queue.retry(c, intent.action, str(error), at))
        if not isinstance(error, SchedulerRefused):
            await self._reconciler.post(SchedulerFailed(str(error)[:300]))
