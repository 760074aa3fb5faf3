"""A fleet that is only imagined: nodes that break and heal by chance, jobs that run, operators that interfere.

Drives the real policy with a scheduler kept in memory, and keeps the policy's inputs as a replay needs them.
"""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from checked import Steps
from fake_slurm import FakeSlurm
from reported import all_ok

from nodetriage.checks.model import Severity
from nodetriage.controller.engine import actions
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
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
from nodetriage.controller.settings.rules import Policy

START = datetime(2026, 11, 1, tzinfo=UTC)
FAULTS = (
    ("gpu_off_bus", Severity.CRITICAL, "gpu_xid"),
    ("gpu_remap_pending", Severity.MAJOR, "gpu_remap"),
    ("ib_link_down", Severity.MAJOR, "ib_link"),
    ("mount_hung", Severity.CRITICAL, "fs_mounts"),
    ("gpu_xid_warning", Severity.WARNING, "gpu_xid"),
)


class Month:
    """`run` it; then `history` holds the policy's inputs and `decided` what it decided."""

    def __init__(self, rules: Policy, nodes: int = 40, seed: int = 1) -> None:
        self.rules, self.random = rules, random.Random(seed)
        self.names = [f"n{i}" for i in range(nodes)]
        self.slurm = FakeSlurm(*self.names)
        self.state = FleetState()
        self.now = START
        self.entries: list[ReplayInput | PolicyLoaded] = [PolicyLoaded(START, rules)]
        self.decided: list[Decided] = []
        self._todo: list[Action] = []
        self._open: dict[str, tuple[str, Severity, str]] = {}
        self._events = 0
        self._jobs = 0
        self._steps = Steps()

    @property
    def history(self) -> History:
        return History(FleetState(), self.entries)

    def run(self, days: int = 30) -> "Month":
        asyncio.run(self._run(days))
        return self

    async def _run(self, days: int) -> None:
        while self.now < START + timedelta(days=days):
            self.now += timedelta(seconds=self.random.uniform(30, 900))
            self.slurm.down = self.random.random() < 0.03
            for event in self._happenings():
                self._take(event)
            await self._act()
            await self._look()
            self._take(Tick())

    def _take(self, event: Event) -> None:
        step = self._steps.step(self.state, event, self.now, self.rules)
        if step.state is not self.state or step.actions or not isinstance(event, Tick):
            self.entries.append(ReplayInput(self.now, (event,)))
        self.state = step.state
        self.decided += [Decided(self.now, action) for action in step.actions]
        self._todo += [a for a in step.actions if a.kind is not ActionKind.SHADOW]

    def _happenings(self) -> Iterator[Event]:
        chance = self.random.random()
        name = self.random.choice(self.names)
        if chance < 0.05 and name not in self._open:
            self._open[name] = self.random.choice(FAULTS)
            yield self._event(name, EventKind.RAISED)
        elif chance < 0.09 and self._open:
            name = self.random.choice(sorted(self._open))
            yield self._event(name, EventKind.CLEARED)
            yield all_ok(self.state.nodes[name], self.now)
            del self._open[name]
            if self.random.random() < 0.7:
                yield OperatorCommand("undrain", name, "olga")
        elif chance < 0.092:
            for victim in self.random.sample(self.names, 8):
                self._open[victim] = FAULTS[3]
                yield self._event(victim, EventKind.RAISED)
        elif chance < 0.3:
            self._jobs += 1
            self.slurm.place(str(self._jobs), *self.random.sample(self.names, 2))
        elif chance < 0.31:
            self.slurm.set_drain(name, "looked at by hand", "otto")
        elif chance < 0.32:
            self.slurm.resume(name)

    def _event(self, name: str, kind: EventKind) -> NodeEvent:
        self._events += 1
        fault, severity, check = self._open[name]
        about = {"check": check, "component": "p", "fault": fault, "severity": severity}
        return NodeEvent(self._events, name, "boot", self._events, self.now, kind, **about)  # type: ignore[arg-type]

    async def _act(self) -> None:
        todo, self._todo = self._todo, []
        for action in todo:
            checked = recheck(self.state, action, self.now, self.rules)
            try:
                if checked.then is Then.DO:
                    self._take(await actions.perform(action, self.slurm))
                elif checked.then is Then.CANCEL:
                    self._take(await actions.call_off(action, checked.why, self.slurm, tried=True))
                else:
                    self._todo.append(action)
            except SchedulerError as error:
                self._todo.append(action)
                if not isinstance(error, SchedulerRefused):
                    self._take(SchedulerFailed(str(error)))

    async def _look(self) -> None:
        try:
            self._take(SchedulerSeen(self.now, await self.slurm.nodes()))
        except SchedulerError as error:
            if not isinstance(error, SchedulerRefused):
                self._take(SchedulerFailed(str(error)))
