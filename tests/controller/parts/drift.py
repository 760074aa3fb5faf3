"""One node of which agent, controller and Slurm each lose a part of the truth; then one round of looking.

The policy, the comparison of open sets and the executor's steps are the real ones. Agent and Slurm are in memory.
"""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from checked import Steps
from fake_slurm import FakeSlurm
from reported import all_ok

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.engine import actions
from nodetriage.controller.policy import liveness
from nodetriage.controller.policy.agents import resync
from nodetriage.controller.policy.agents.resync import StatedFinding, StatedSet
from nodetriage.controller.policy.fleet_state import AgentAhead
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    OperatorCommand,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.settings.limits import CommonMode, DrainLimits
from nodetriage.controller.settings.rules import Mode, Policy

NODES = ("n1", "n2")
FAULTS = (("gpu_off_bus", Severity.CRITICAL), ("gpu_remap_pending", Severity.MAJOR), ("fs_full", Severity.WARNING))
RULES = Policy(
    mode=Mode.ENFORCE,
    drain_limits=DrainLimits(1000, 1000, 100, 1000, 100, resumed_backoff_s=0),
    common_mode=CommonMode(enabled=False),
)


@dataclass
class Agent:
    """What it has open, its numbers, and the events that no controller has acknowledged."""

    boot: int = 1
    seq: int = 0
    acked: int = 0
    open: dict[str, Severity] = field(default_factory=dict)
    unsent: list[NodeEvent] = field(default_factory=list)


class Drift:
    """Each method is something that happens; `round` is what follows once all can speak again."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 1, tzinfo=UTC)
        self.slurm = FakeSlurm(*NODES)
        self.agents = {name: Agent() for name in NODES}
        self.truth: dict[str, dict[str, Severity]] = {name: {} for name in NODES}  # what is really wrong
        self.state, self.steps, self.todo = FleetState(), Steps(), list[Action]()
        self.stored: dict[tuple[str, str], int] = {}  # (node, boot) -> the newest event in the database
        self.saved = self.state, list[Action](), dict(self.stored)
        self.cursor = 0
        self.starting = False  # the controller is, with another database
        self.given: dict[str, str] = {}  # incident id -> the node for which Slurm got it
        self.twice: list[str] = []
        for name in NODES:
            self._say(name, EventKind.STARTED)
        self.send_all()
        self.look()

    # What happens.

    def break_(self, name: str, fault: int) -> None:
        code, severity = FAULTS[fault]
        if code not in self.truth[name]:
            self.truth[name][code] = self.agents[name].open[code] = severity
            self._say(name, EventKind.RAISED, fault=code, severity=severity)

    def mend(self, name: str, fault: int) -> None:
        code, severity = FAULTS[fault]
        if self.truth[name].pop(code, None) is not None and self.agents[name].open.pop(code, None) is not None:
            self._say(name, EventKind.CLEARED, fault=code, severity=severity)

    def reboot(self, name: str) -> None:
        agent = self.agents[name]
        self.agents[name] = Agent(agent.boot + 1, open=dict(self.truth[name]), unsent=agent.unsent)
        self._say(name, EventKind.STARTED)
        for code, severity in self.truth[name].items():
            self._say(name, EventKind.RAISED, fault=code, severity=severity)

    def forget(self, name: str) -> None:
        """The agent's state directory is lost: it starts anew in the same boot, and finds what is really wrong."""
        agent = self.agents[name]
        self.agents[name] = Agent(
            agent.boot, max(self._newest(name, f"boot{agent.boot}"), agent.seq), 0, dict(self.truth[name])
        )
        self._say(name, EventKind.STARTED)
        for code, severity in self.truth[name].items():
            self._say(name, EventKind.RAISED, fault=code, severity=severity)

    def drop(self, name: str) -> None:
        """Its spool was full."""
        self.agents[name].unsent.clear()
        self._say(name, EventKind.OTHER)

    def send_all(self) -> None:
        self._start()
        for agent in self.agents.values():
            for event in agent.unsent:
                self.cursor += 1
                self.stored[event.node, event.boot_id] = max(event.seq, self._newest(event.node, event.boot_id))
                present = event.boot_id == f"boot{agent.boot}"
                self.take(replace(event, id=self.cursor, present=present))
            agent.unsent, agent.acked = [], agent.seq

    def back_up(self) -> None:
        self.saved = self.state, list(self.todo), dict(self.stored)

    def restore(self) -> None:
        self.state, todo, stored = self.saved
        self.todo, self.stored, self.steps = list(todo), dict(stored), Steps()
        self.cursor, self.starting = self.state.cursor, True

    def lose_database(self) -> None:
        self.saved = FleetState(), [], {}
        self.restore()

    def drain(self, name: str) -> None:
        self.slurm.set_drain(name, "fan, olga", "olga")

    def resume(self, name: str) -> None:
        self.slurm.resume(name)

    def undrain(self, name: str) -> None:
        self._start()
        self.take(OperatorCommand("undrain", name, "olga"))

    def act(self) -> None:
        self._start()
        asyncio.run(self._act())

    def look(self) -> None:
        self.now += timedelta(seconds=1)
        self.take(SchedulerSeen(self.now, asyncio.run(self.slurm.nodes())))

    # What follows.

    def round(self) -> None:
        """All that was unsent comes, each agent states its set, Slurm is looked at, and what is to be done is done."""
        self.send_all()
        self.look()
        for name in NODES:
            self.state_open(name)
        for _ in range(3):
            self.act()
            for name in NODES:
                if (node := self.state.nodes.get(name)) is not None:
                    self.take(all_ok(node, self.now))
            self.look()
            self.take(Tick(thorough=True))

    def state_open(self, name: str) -> int:
        """Returns how many corrections the stated set needed."""
        agent = self.agents[name]
        said = tuple(StatedFinding("c", "p", code, s, Confidence.STATE) for code, s in agent.open.items())
        stated = StatedSet(f"boot{agent.boot}", agent.seq, said, {"c": True})
        found = resync.differences(self.state.nodes.get(name), stated)
        for c in found:
            self.cursor += 1
            what = (c.check, c.component, c.fault, c.severity)
            more = {"restated": True, "confidence": c.confidence}
            self.take(NodeEvent(self.cursor, name, stated.boot_id, agent.seq, self.now, c.kind, *what, **more))  # type: ignore[arg-type]
        return len(found)

    def lost(self) -> None:
        """What the controller itself sees of nodes that Slurm lost."""
        for seen in liveness.lost(self.state, self.slurm.views):
            self.cursor += 1
            what = (liveness.CHECK, liveness.PART, seen.fault, Severity.CRITICAL)
            boot = liveness.CONTROLLER_BOOT
            self.take(NodeEvent(self.cursor, seen.node, boot, self.cursor, self.now, EventKind(seen.kind), *what))

    def disagreements(self) -> list[str]:
        """What is left between the three after a round, and what is not as it must be."""
        more = ((name, self.state_open(name)) for name in NODES)
        return [*self.disagreements_now(), *(f"{name}: {n} corrections after the round" for name, n in more if n)]

    def disagreements_now(self) -> list[str]:
        found = list(self.twice)
        for name in NODES:
            if (node := self.state.nodes.get(name)) is None:
                found.append(f"{name}: the controller does not know it")
                continue
            view, truth = self.slurm.views[name], self.truth[name]
            ours = {f.fault: f.severity for f in node.open_findings}
            if not ours == truth == self.agents[name].open:
                found.append(f"{name}: open are {ours}, the agent's {self.agents[name].open}, really {truth}")
            reason = parse_reason(view.reason) if view.draining else None
            drain = node.drain
            if reason is not None and (drain is None or drain.incident != reason.incident or drain.theirs):
                found.append(f"{name}: Slurm has {view.reason!r}, and we have {drain}")
            if drain is not None and not drain.theirs and (reason is None or drain.status.value == "wanted"):
                found.append(f"{name}: we have {drain}, and Slurm {view.reason!r}")
            grave = any(s >= Severity.MAJOR for s in truth.values())
            if grave and not view.draining:
                found.append(f"{name}: it has {truth} and is not drained; we have {drain}, {node.state}")
        return found

    def take(self, event: Event) -> None:
        step = self.steps.step(self.state, event, self.now, RULES)
        self.state = step.state
        self.todo += [a for a in step.actions if a.kind is not ActionKind.SHADOW]

    def _start(self) -> None:
        """A controller reads Slurm before it takes events, and compares its events with what agents have acks for.

        Where neither shows that the database is old, nobody remembers an id that it gave: then it may come again.
        """
        if not self.starting:
            return
        self.starting, before = False, self.state.epoch
        self.now += timedelta(seconds=10)
        for name, agent in self.agents.items():
            stored = self._newest(name, f"boot{agent.boot}")
            if agent.acked > stored:
                self.take(AgentAhead(name, f"boot{agent.boot}", agent.acked, stored))
        self.look()
        if self.state.epoch == before:
            self.given.clear()

    async def _act(self) -> None:
        todo, self.todo = self.todo, []
        for action in todo:
            checked = recheck(self.state, action, self.now, RULES)
            if checked.then is Then.DO:
                said = len(self.slurm.said)
                done = await actions.perform(action, self.slurm)
                if any(line.startswith("drain") for line in self.slurm.said[said:]):
                    self._given(action)
            elif checked.then is Then.CANCEL:
                done = await actions.call_off(action, checked.why, self.slurm, tried=True)
            else:
                self.todo.append(action)
                continue
            self.take(done)

    def _given(self, action: Action) -> None:
        if self.given.setdefault(action.incident, action.node) != action.node:
            self.twice.append(f"{action.incident} is given to {action.node}, and was {self.given[action.incident]}'s")

    def _newest(self, name: str, boot: str) -> int:
        return self.stored.get((name, boot), 0)

    def _say(self, name: str, kind: EventKind, **about: Any) -> None:
        agent = self.agents[name]
        agent.seq += 1
        what = {"check": "c", "component": "p", **about} if about else {}
        agent.unsent.append(NodeEvent(0, name, f"boot{agent.boot}", agent.seq, self.now, kind, **what))
