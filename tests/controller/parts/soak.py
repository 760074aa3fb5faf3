"""A month of a large fleet in which everything fails: single faults in bursts, and six faults of the whole fleet.

The real policy decides and the performer's own steps act, on a Slurm in memory that holds every call against the rules.
Faults begin and end as 400 servers' did (InfiniteHBD-Trace), one window of their year for each 400 nodes.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import count

import soak_hardships
import soak_upsets
from checked import Steps
from reported import all_ok
from soak_judge import FLAPPING, OWN_HIGH, OWN_LOW, Figures, Judge
from soak_parts import DAY, WatchfulSlurm, recorded_faults

from nodetriage.checks.model import Severity
from nodetriage.controller.engine import actions, inputs
from nodetriage.controller.policy import common_mode
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainStatus,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    OperatorCommand,
    SchedulerFailed,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.policy.verify.replay import Decided, History, PolicyLoaded, ReplayInput
from nodetriage.controller.scheduler import SchedulerError, SchedulerRefused
from nodetriage.controller.settings.limits import HookLimits
from nodetriage.controller.settings.rules import Mode, Policy, Response, Rule

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR, MINUTE = 3600.0, 60.0
RULES = Policy(
    mode=Mode.ENFORCE,
    rule=(Rule(fault=FLAPPING, action=Response.DRAIN_AND_REQUEUE, returns="checks_pass"),),
    hooks=HookLimits(mode="enforce"),
)
LEAF_NODES = 16


class Soak:
    """`run` it; then `figures`, and `history` for a replay of `decided`."""

    def __init__(
        self, nodes: int = 2000, days: float = 30, seed: int = 1, interleavings: int = 1000, hardships: bool = True
    ) -> None:
        self.random, self.days, self.interleavings = random.Random(seed), days, interleavings
        self.names = [f"n{i:04d}" for i in range(nodes)]
        self.slurm = WatchfulSlurm(*self.names)
        leaves = {n: (f"switch leaf{i // LEAF_NODES}",) for i, n in enumerate(self.names)}
        self.slurm.places = leaves
        self.state, self.now_s = FleetState(), 0.0
        self.decided: list[Decided] = []
        self.figures = Figures()
        self._judge = Judge(self.figures, self.slurm)
        self._start = self.state  # where the history for a replay begins
        self._entries: list[tuple[datetime, Event | inputs.ViewChange]] = []
        self._view = inputs.View()
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._seq = count(), count(1)
        self._todo: list[Action] = []
        self._steps = Steps(whole_every=1000)
        self.hardships = hardships
        self._ticks: set[float] = set()
        self.node_skew_s: dict[str, float] = {}
        self._clock_s = 0.0  # how far the controller's clock is from the true time
        self._again_s: dict[str, float] = {}  # when an action that failed is tried again

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.now_s + self._clock_s)

    @property
    def history(self) -> History:
        return History(self._start, self._told())

    def _told(self) -> Iterator[ReplayInput | PolicyLoaded]:
        yield PolicyLoaded(START, RULES)
        view = inputs.View()
        for at, one in self._entries:
            if isinstance(one, inputs.ViewChange):
                view = view.after(one)
                yield ReplayInput(at, (view.seen(one.read_at),))
            else:
                yield ReplayInput(at, (one,))

    def run(self) -> "Soak":
        self._schedule()
        asyncio.run(self._run())
        self._judge.sum_up(self.names[0], RULES.drain_limits, self.state, self.now_s)
        return self

    async def _run(self) -> None:
        while self._plan:
            self.now_s, _, happen = heapq.heappop(self._plan)
            if self.now_s > self.days * DAY:
                return
            happen()
            await self._act()

    def at(self, when_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._plan, (when_s, next(self._order), happen))

    # What happens.

    def _schedule(self) -> None:
        for name in self.names:
            self.at(0.0, lambda n=name: self.say(n, EventKind.STARTED, version="1"))  # type: ignore[misc]
        for job in range(len(self.names) // 10):
            self.at(1.0, lambda j=str(job): self.place(j))  # type: ignore[misc]
        for k in range(int(self.days * 48)):
            self.at(2.0 + k * 1800, self.look)
        for begin_s, end_s, name in recorded_faults(self.names, self.days, self.random):
            self._plan_fault(begin_s, end_s, name)
        end_s = self.days * DAY
        soak_upsets.plan(self, end_s)
        for _ in range(5):
            self.at(self.random.uniform(0, end_s), lambda: self.set_down(600.0))
        for _ in range(int(self.days * 7)):
            self.at(self.random.uniform(10, end_s), self._kill)
        for _ in range(self.interleavings):
            self.at(self.random.uniform(10, end_s), lambda: soak_upsets.operator(self))
        if self.hardships:
            soak_hardships.plan(self, end_s)

    def _plan_fault(self, begin_s: float, end_s: float, name: str) -> None:
        high = self.random.random() < 0.7
        fault, severity = (
            self.random.choice(OWN_HIGH if high else OWN_LOW),
            Severity.CRITICAL if high else Severity.MAJOR,
        )
        component = f"part{next(self._seq)}"
        end_s = max(end_s, begin_s + 600)
        self.at(begin_s, lambda: self.fail(name, component, fault, severity))
        self.at(end_s, lambda: self.mend(name, component, fault, severity))
        self.at(end_s + HOUR, lambda: self.undrain(name))

    def fail(self, name: str, component: str, fault: str, severity: Severity) -> None:
        self._judge.begins(name, component, fault, self.now_s)
        self.say(name, EventKind.RAISED, component=component, fault=fault, severity=severity)
        if severity is Severity.CRITICAL:
            began_s = self.now_s
            self.at(began_s + MINUTE, lambda: self._judge.after_a_minute(name, component, self.state, began_s))

    def mend(self, name: str, component: str, fault: str, severity: Severity, *, judged: bool = True) -> None:
        """`judged`: not where the fault is over before anybody has to act on it."""
        if judged and severity is Severity.CRITICAL:
            self._judge.ends(name, component, self.state, self.now_s)
        self._judge.true.pop((name, component), None)
        self.say(name, EventKind.CLEARED, component=component, fault=fault, severity=severity)

    def set_down(self, for_s: float) -> None:
        self.slurm.down = True
        self.at(self.now_s + for_s, self._up)

    def _up(self) -> None:
        self.slurm.down = False
        self._again_s.clear()  # the executor tries again at once
        self.look()

    def _kill(self) -> None:
        """The controller starts again from what is on disk; what it was doing is in doubt."""
        self.figures.kills += 1
        self.state = inputs.snapshot_of(inputs.snapshot_row(self.state, self.now)["document"])

    # What hardships do.

    def next(self) -> int:
        return next(self._seq)

    def faulty(self) -> dict[tuple[str, str], str]:
        """(node, component) -> fault, of all that is wrong now."""
        return dict(self._judge.true)

    def step_clock(self, by_s: float) -> None:
        self._clock_s += by_s
        self.take(Tick())

    def back_up(self) -> tuple[FleetState, list[Action]]:
        return self.state, list(self._todo)

    def restore(self, backup: tuple[FleetState, list[Action]]) -> None:
        """Another database. A replay begins here: nothing that was before is in it."""
        self.state, todo = backup
        self._todo, self._start, self._steps = list(todo), self.state, Steps(whole_every=1000)
        self._entries, self._view, self.decided = [], inputs.View(), []
        self._again_s.clear()
        self._judge.forgets()

    def undrain(self, name: str) -> None:
        self.take(OperatorCommand("undrain", name, "olga"))

    # The controller.

    def say(self, name: str, kind: EventKind, **about: object) -> None:
        number = next(self._seq)
        given = {"check": "gpu_xid", "version": "1", **about}
        at = START + timedelta(seconds=self.now_s + self.node_skew_s.get(name, 0.0))
        times = {"received_at": self.now, "at_boot_s": self.now_s}
        self.take(NodeEvent(number, name, "boot", number, at, kind, **times, **given))  # type: ignore[arg-type]
        if kind is EventKind.CLEARED and self.state.nodes[name].drain is not None:
            self._report(name)
            for wait_s in (300, 601, 3500):
                self.at(self.now_s + wait_s, lambda: self._report(name))
        if kind is EventKind.RAISED:
            for wait_s in (46, 52, 61, 301, 900):
                self._tick_at(self.now_s + wait_s)

    def _tick_at(self, when_s: float) -> None:
        """One tick for all that ask for one within four seconds; a controller ticks each second."""
        at_s = when_s - when_s % 4 + 4
        if at_s not in self._ticks:
            self._ticks.add(at_s)
            self.at(at_s, lambda: self.take(Tick()))

    def _report(self, name: str) -> None:
        self.take(all_ok(self.state.nodes[name], self.now))

    def take(self, event: Event) -> None:
        before = self.state
        step = self._steps.step(before, event, self.now, RULES)
        if isinstance(event, SchedulerSeen):
            change = self._view.change(event)
            self._view = self._view.after(change)
            self._entries.append((self.now, change))
        elif step.state is not before or step.actions or not isinstance(event, Tick):
            self._entries.append((self.now, event))
        self.state = step.state
        self._judge.told(step.notices, self.now_s)
        for action in step.actions:
            old = before.nodes[action.node].drain if action.node in before.nodes else None
            if action.kind is ActionKind.DRAIN and (old is None or old.status is DrainStatus.WANTED):
                self._judge.asked(action.node, self.now_s + self._clock_s)
        self.decided += [Decided(self.now, action) for action in step.actions]
        self._todo += [a for a in step.actions if a.kind is not ActionKind.SHADOW]
        if self.state.breaker.is_open and not before.breaker.is_open:
            close = OperatorCommand("close_breaker", "", "olga", "looked at it")
            self.at(self.now_s + 2 * HOUR, lambda: self.take(close))
        if self.state.fleet_incidents is not before.fleet_incidents:
            self._note_common()

    def _note_common(self) -> None:
        for name, component in self._judge.true:
            if (node := self.state.nodes.get(name)) is not None and common_mode.covering(self.state, node):
                self._judge.common.add((name, component))

    async def _act(self) -> None:
        for _ in range(len(self._todo)):
            action = self._todo.pop(0)
            if self._again_s.get(action.id, 0.0) > self.now_s:
                self._todo.append(action)
                continue
            try:
                await self._try(action)
            except SchedulerError as error:
                self._todo.append(action)
                self._again_s[action.id] = self.now_s + 300.0
                self.at(self.now_s + 300.0, lambda: None)
                if not isinstance(error, SchedulerRefused):
                    self.take(SchedulerFailed(str(error)))

    async def _try(self, action: Action) -> None:
        if self.random.random() < 0.05:
            soak_upsets.operator(self)  # between the decision and the deed
        checked = recheck(self.state, action, self.now, RULES)
        if checked.then is Then.WAIT:
            self._todo.append(action)
            return
        calls = len(self.slurm.said)
        if checked.then is Then.DO:
            done = await actions.perform(action, self.slurm)
        else:
            done = await actions.call_off(action, checked.why, self.slurm, tried=True)
        if action.kind is ActionKind.DRAIN and any(s.startswith("drain") for s in self.slurm.said[calls:]):
            self._judge.drained(action, self.state, self.now_s)
        if action.kind is ActionKind.REQUEUE and self.slurm.held[action.job].state == "PENDING":
            self.at(self.now_s + 600, lambda: self.place(action.job))
        if self.random.random() < 0.03:
            self._kill()  # after the deed, before it is written down: it is done again, which looks first
            self._todo.append(action)
            return
        self.take(done)
        self.at(self.now_s + 2, self.look)

    def look(self) -> None:
        if self.slurm.down:
            self.take(SchedulerFailed("Unable to contact slurm controller"))
            return
        self.take(SchedulerSeen(self.now, dict(self.slurm.views), (), self.slurm.places))
        self.take(Tick())

    def place(self, job: str) -> None:
        free = [n for n in self.random.sample(self.names, 40) if not self.slurm.views[n].draining][:4]
        restarts = self.slurm.held[job].restarts if job in self.slurm.held else 0
        self.slurm.place(job, *free, restarts=restarts)

    def report(self) -> dict[str, object]:
        return asdict(replace(self.figures, broken_rules=self.figures.broken_rules[:10]))
