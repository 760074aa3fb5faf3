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
from typing import Any

from checked import Steps
from reported import all_ok
from soak_judge import FLAPPING, OWN_HIGH, OWN_LOW, Figures, Judge
from soak_parts import DAY, WatchfulSlurm, recorded_faults

from nodetriage.checks.model import Severity
from nodetriage.controller.engine import actions, inputs
from nodetriage.controller.policy import common_mode
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    ContactChanged,
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
from nodetriage.controller.settings.rules import Policy, Response, Rule

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = 3600.0
RULES = Policy(rule=(Rule(fault=FLAPPING, action=Response.DRAIN_AND_REQUEUE, returns="checks_pass"),))
LEAF_NODES = 16


class Soak:
    """`run` it; then `figures`, and `history` for a replay of `decided`."""

    def __init__(self, nodes: int = 2000, days: float = 30, seed: int = 1, interleavings: int = 1000) -> None:
        self.random, self.days, self.interleavings = random.Random(seed), days, interleavings
        self.names = [f"n{i:04d}" for i in range(nodes)]
        self.slurm = WatchfulSlurm(*self.names)
        leaves = {n: (f"switch leaf{i // LEAF_NODES}",) for i, n in enumerate(self.names)}
        self.slurm.places = leaves
        self.state, self.now_s = FleetState(), 0.0
        self.decided: list[Decided] = []
        self.figures = Figures()
        self._judge = Judge(self.figures, self.slurm)
        self._entries: list[tuple[datetime, Event | inputs.ViewChange]] = []
        self._view = inputs.View()
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._seq = count(), count(1)
        self._todo: list[Action] = []
        self._steps = Steps(whole_every=1000)

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.now_s)

    @property
    def history(self) -> History:
        return History(FleetState(), self._told())

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
            self.at(0.0, lambda n=name: self._say(n, EventKind.STARTED, version="1"))  # type: ignore[misc]
        for job in range(len(self.names) // 10):
            self.at(1.0, lambda j=str(job): self._place(j))  # type: ignore[misc]
        for k in range(int(self.days * 48)):
            self.at(2.0 + k * 1800, self._look)
        for begin_s, end_s, name in recorded_faults(self.names, self.days, self.random):
            self._plan_fault(begin_s, end_s, name)
        end_s = self.days * DAY
        for component, upheave in ((0.1, self._half_vanish), (0.24, self._file_server), (0.38, self._rollout)):
            self.at(component * end_s, upheave)
        self.at(0.52 * end_s, self._restart_storm)
        for k in range(12):
            self._plan_flapping(0.6 * end_s + k * 2 * HOUR)
        for _ in range(5):
            self.at(self.random.uniform(0, end_s), lambda: self._set_down(600.0))
        for _ in range(int(self.days * 7)):
            self.at(self.random.uniform(10, end_s), self._kill)
        for _ in range(self.interleavings):
            self.at(self.random.uniform(10, end_s), self._operator)

    def _plan_fault(self, begin_s: float, end_s: float, name: str) -> None:
        high = self.random.random() < 0.7
        fault, severity = (
            self.random.choice(OWN_HIGH if high else OWN_LOW),
            Severity.CRITICAL if high else Severity.MAJOR,
        )
        component = f"part{next(self._seq)}"
        end_s = max(end_s, begin_s + 600)
        self.at(begin_s, lambda: self._break(name, component, fault, severity))
        self.at(end_s, lambda: self._mend(name, component, fault, severity))
        self.at(end_s + HOUR, lambda: self._take(OperatorCommand("undrain", name, "olga")))

    def _break(self, name: str, component: str, fault: str, severity: Severity) -> None:
        self._judge.begins(name, component, fault, self.now_s)
        self._say(name, EventKind.RAISED, component=component, fault=fault, severity=severity)

    def _mend(self, name: str, component: str, fault: str, severity: Severity) -> None:
        if severity is Severity.CRITICAL:
            self._judge.ends(name, component, self.state, self.now_s)
        self._judge.true.pop((name, component), None)
        self._say(name, EventKind.CLEARED, component=component, fault=fault, severity=severity)

    def _plan_flapping(self, when_s: float) -> None:
        name = self.names[0]
        about = (name, "flap", FLAPPING, Severity.CRITICAL)
        self.at(when_s, lambda: self._break(*about))
        self.at(when_s + 300, lambda: self._unflap(*about))
        self.at(when_s + 1000, lambda: self._take(Tick()))

    def _unflap(self, name: str, component: str, fault: str, severity: Severity) -> None:
        self._judge.true.pop((name, component), None)
        self._say(name, EventKind.CLEARED, component=component, fault=fault, severity=severity)

    def _half_vanish(self) -> None:
        lost = tuple(self.random.sample(self.names, len(self.names) // 2))
        self.figures.fleet_event_nodes += len(lost)
        self._take(ContactChanged(lost=lost))
        self.at(self.now_s + HOUR, lambda: self._take(ContactChanged(back=lost)))

    def _file_server(self) -> None:
        self._shake(0.3, 120.0, 2 * HOUR, "mount_hung", check="fs_mounts", places=("mount source fs1:/home",))

    def _rollout(self) -> None:
        self._shake(0.15, 1800.0, 3 * HOUR, "gpu_missing", check="gpu_count", version="2")

    def _shake(self, share: float, within_s: float, for_s: float, fault: str, **more: Any) -> None:
        hit = self.random.sample(self.names[1:], int(len(self.names) * share))
        self.figures.fleet_event_nodes += len(hit)
        begin_s = self.now_s
        about = {"component": "shared", "fault": fault, "severity": Severity.CRITICAL}
        for name in hit:
            told_s = begin_s + self.random.uniform(0, within_s)
            self.at(told_s, lambda n=name: self._say(n, EventKind.RAISED, **about, **more))  # type: ignore[misc]
            self.at(told_s + for_s, lambda n=name: self._say(n, EventKind.CLEARED, **about, **more))  # type: ignore[misc]

    def _restart_storm(self) -> None:
        """Every agent starts anew and says again what it finds."""
        for (name, component), fault in tuple(self._judge.true.items()):
            severity = Severity.MAJOR if fault in OWN_LOW else Severity.CRITICAL
            again = {"component": component, "fault": fault, "severity": severity}
            self.at(self.now_s + 1, lambda n=name, a=again: self._say(n, EventKind.REPEATED, **a))  # type: ignore[misc]
        for name in self.names:
            self._say(name, EventKind.STARTED)

    def _set_down(self, for_s: float) -> None:
        self.slurm.down = True
        self.at(self.now_s + for_s, lambda: setattr(self.slurm, "down", False))

    def _kill(self) -> None:
        """The controller starts again from what is on disk; what it was doing is in doubt."""
        self.figures.kills += 1
        self.state = inputs.snapshot_of(inputs.snapshot_row(self.state, self.now)["document"])

    def _operator(self) -> None:
        """Drains a node, often one that is ill, or resumes one; hours later lets go of what is theirs."""
        ill = [name for name, _ in self._judge.true]
        name = self.random.choice(ill if ill and self.random.random() < 0.5 else self.names)
        view = self.slurm.views[name]
        if self.random.random() < 0.15:
            self.slurm.resume(name)
            return
        if view.draining and parse_reason(view.reason) is None:
            return
        self.figures.operator_drains += 1
        self.slurm.set_drain(name, f"looked at by hand, {next(self._seq)}", "otto")
        mine = self.slurm.views[name].reason
        self.at(self.now_s + self.random.uniform(60, 8 * HOUR), lambda: self._let_go(name, mine))

    def _let_go(self, name: str, mine: str) -> None:
        if self.slurm.views[name].reason == mine:
            self.slurm.resume(name)

    # The controller.

    def _say(self, name: str, kind: EventKind, **about: object) -> None:
        number = next(self._seq)
        given = {"check": "gpu_xid", "version": "1", **about}
        self._take(NodeEvent(number, name, "boot", number, self.now, kind, **given))  # type: ignore[arg-type]
        if kind is EventKind.CLEARED and self.state.nodes[name].drain is not None:
            self._report(name)
            for wait_s in (300, 601, 3500):
                self.at(self.now_s + wait_s, lambda: self._report(name))
        if kind is EventKind.RAISED:
            for wait_s in (61, 301, 900):
                self.at(self.now_s + wait_s, lambda: self._take(Tick()))

    def _report(self, name: str) -> None:
        self._take(all_ok(self.state.nodes[name], self.now))

    def _take(self, event: Event) -> None:
        before = self.state
        step = self._steps.step(before, event, self.now, RULES)
        if isinstance(event, SchedulerSeen):
            change = self._view.change(event)
            self._view = self._view.after(change)
            self._entries.append((self.now, change))
        elif step.state is not before or step.actions or not isinstance(event, Tick):
            self._entries.append((self.now, event))
        self.state = step.state
        self.decided += [Decided(self.now, action) for action in step.actions]
        self._todo += [a for a in step.actions if a.kind is not ActionKind.SHADOW]
        if self.state.breaker.is_open and not before.breaker.is_open:
            close = OperatorCommand("close_breaker", "", "olga", "looked at it")
            self.at(self.now_s + 2 * HOUR, lambda: self._take(close))
        if self.state.fleet_incidents is not before.fleet_incidents:
            self._note_common()

    def _note_common(self) -> None:
        for name, component in self._judge.true:
            if (node := self.state.nodes.get(name)) is not None and common_mode.covering(self.state, node):
                self._judge.common.add((name, component))

    async def _act(self) -> None:
        for _ in range(len(self._todo)):
            action = self._todo.pop(0)
            try:
                await self._try(action)
            except SchedulerError as error:
                if not isinstance(error, SchedulerRefused):
                    self._take(SchedulerFailed(str(error)))
                self._todo.append(action)
                self.at(self.now_s + 60, lambda: None)

    async def _try(self, action: Action) -> None:
        if self.random.random() < 0.05:
            self._operator()  # between the decision and the deed
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
            self.at(self.now_s + 600, lambda: self._place(action.job))
        if self.random.random() < 0.03:
            self._kill()  # after the deed, before it is written down: it is done again, which looks first
            self._todo.append(action)
            return
        self._take(done)
        self.at(self.now_s + 2, self._look)

    def _look(self) -> None:
        if self.slurm.down:
            self._take(SchedulerFailed("Unable to contact slurm controller"))
            return
        self._take(SchedulerSeen(self.now, dict(self.slurm.views), (), self.slurm.places))
        self._take(Tick())

    def _place(self, job: str) -> None:
        free = [n for n in self.random.sample(self.names, 40) if not self.slurm.views[n].draining][:4]
        restarts = self.slurm.held[job].restarts if job in self.slurm.held else 0
        self.slurm.place(job, *free, restarts=restarts)

    def report(self) -> dict[str, object]:
        return asdict(replace(self.figures, broken_rules=self.figures.broken_rules[:10]))
