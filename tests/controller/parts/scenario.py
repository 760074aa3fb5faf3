"""Runs a transcript of tests/scenarios: commands, a line `----`, what came of them.

The policy is the real one, and so are the ledger (SQLite in memory) and the performer; only Slurm is kept in memory.

    policy             the lines below it, up to `----`, are a policy.toml
    slurm NODE...      the cluster
    job ID NODE... [key=value...]      a job that runs there (state, batch, requeueable, restarts)
    end ID [STATE]     it ends
    raise|repeat|change|clear NODE FAULT PART [SEVERITY]     an agent's event
    refuse NODE FAULT PART JOB         an agent's event: a hook of ours refused the job
    hook_error NODE prolog|epilog      Slurm drains the node because a hook failed
    hooks              print for what the nodes' hooks may refuse jobs
    ran NODE OUTCOME   all its checks ran, its heartbeat reports this outcome; `clear` reports ok
    reboot NODE        someone has Slurm reboot it (nextstate=RESUME)
    up NODE            that ends, and its agent has not started yet
    power_down NODE    Slurm switches it off (state=power_down_asap): that ends its drain
    power_up NODE      it is on again, and its agent has not started yet
    boot NODE          it was rebooted: its agent starts anew
    do                 the performer does all that is due
    see                the controller reads Slurm's nodes
    wait SECONDS       time passes, then a tick
    drain|resume NODE [REASON...]      an operator at Slurm
    undrain NODE       an operator at nodetriagectl
    maintenance NODE on|off [REASON...]         likewise
    order VERB NODE [until=SECONDS] [fault=FAULT] [now] [REASON...]     likewise; NODE is "-" for the fleet
    breaker close [REASON...]                   likewise
    incident close ID [REASON...]               likewise
    scheduler down|up
    lose|find NODE     Slurm loses the node: it is DOWN by Slurm's own word; or has it back
    maint NODE on|off  a MAINT reservation in Slurm
    reserve NAME NODE...                        another reservation that is running
    share NODE KIND NAME                        the node stands in a rack, behind a switch
    silent|heard NODE...                        their heartbeats are missing, or come again
    version NODE VERSION                        of its agent, from now on
    reason NODE USER REASON...                  Slurm or a person puts another reason in place of the one there
    lose_database      the controller is started again with an empty database
    restart            the controller is killed and started again
    nodes              print where every node stands
    fleet              print the breaker, the fleet's incidents and what the drain limits hold

PART may end in @WORD: the fault's evidence names that mount source.
"""

import asyncio
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from checked import Steps
from fake_slurm import FakeSlurm
from reported import all_ok
from sqlalchemy import create_engine

from nodetriage.checks.model import Severity
from nodetriage.checks.model.settings import replace_from
from nodetriage.controller.engine import actions
from nodetriage.controller.policy import drain_limits, liveness
from nodetriage.controller.policy.orders.command import Verb
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.state import (
    ActionDone,
    ActionOutcome,
    ContactChanged,
    Event,
    EventKind,
    NodeEvent,
    OperatorCommand,
    SchedulerFailed,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.scheduler import ReservationView, SchedulerError, SchedulerRefused
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import action_queue, schema, state_store

KINDS = {
    "raise": EventKind.RAISED,
    "repeat": EventKind.REPEATED,
    "change": EventKind.CHANGED,
    "clear": EventKind.CLEARED,
}
# Whose finding a fault is, by how its code begins.
CHECKS = {"mount": "fs_mounts", "ib": "ib_link", "gpu": "gpu_xid"}


class Scenario:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, tzinfo=UTC)
        self.policy = Policy(mode=Mode.ENFORCE)
        self.slurm = FakeSlurm()
        self.events = 0
        self.boots: dict[str, int] = {}
        self.versions: dict[str, str] = {}
        self.engine = create_engine("sqlite://")
        schema.metadata.create_all(self.engine)
        self.state = self._load()
        self.out: list[str] = []
        self.steps = Steps()

    def run(self, text: str) -> str:
        """The same transcript with what came of it in place of what was expected."""
        whole = []
        for head, commands, _ in blocks(text):
            self.out = []
            self._block(commands)
            whole.append("\n".join([*head, *commands, "----", *self.out]) + "\n")
        return "\n".join(whole)

    def _block(self, commands: list[str]) -> None:
        if commands[0].startswith("policy"):
            self.policy = replace_from(
                Policy, Policy(mode=Mode.ENFORCE), tomllib.loads("\n".join(commands[1:])), "scenario"
            )
            return
        for line in commands:
            verb, *words = line.split()
            name = (KINDS.get(verb) and "event") or verb
            getattr(self, f"_{name}")(verb, *words)

    def take(self, event: Event) -> None:
        before = self.state
        step = self.steps.step(before, event, self.now, self.policy)
        with self.engine.begin() as connection:
            if isinstance(event, ActionDone):
                action_queue.finish(connection, event, self.now)
            state_store.save(connection, before, step, self.now)
        self.state = step.state
        for t in step.transitions:
            self.out.append(f"{t.node}: {t.before or 'new'} -> {t.after} ({t.cause}; {t.actor})")
        for a in step.actions:
            what = f"{a.job}{', held' if a.hold else ''}" if a.job else a.node
            self.out.append(f"{a.kind} {what}: {a.text or a.id}")
        self.out += [f"notice {n.node or 'fleet'}: {n.text}" for n in step.notices]
        if step.reply is not None and not step.reply.accepted:
            self.out.append(step.reply.text)
        for node in step.state.nodes.values():
            old = before.nodes.get(node.node)
            if node.drain and node.drain.queued_reason and not (old and old.drain and old.drain.queued_reason):
                self.out.append(f"held {node.node}: {node.drain.queued_reason}")

    def _event(self, verb: str, node: str, fault: str, component: str, severity: str = "critical") -> None:
        component, _, source = component.partition("@")
        more = {"fault": fault, "component": component, "severity": Severity[severity.upper()]}
        check = CHECKS.get(fault.partition("_")[0], "check")
        self._say(node, KINDS[verb], check=check, places=(f"mount source {source}",) if source else (), **more)
        if verb == "clear" and self.state.nodes[node].drain is not None:
            self.take(all_ok(self.state.nodes[node], self.now))  # the run that cleared it, in the next heartbeat

    def _refuse(self, verb: str, node: str, fault: str, component: str, job: str) -> None:
        self._say(node, EventKind.REFUSED, check="prolog", fault=fault, component=component, job=job)

    def _hook_error(self, verb: str, node: str, hook: str) -> None:
        self.slurm.set_drain(node, f"{hook.capitalize()} error", "root")

    def _hooks(self, verb: str) -> None:
        for name, facts in sorted(self.state.hooks.items()):
            words = [f"{f.fault} on {f.component}: granted" for f in facts.granted]
            words += [f"{f.fault} on {f.component}: held, {f.why}" for f in facts.held]
            self.out.append(f"{name}: {'; '.join(words) or 'nothing now'}")

    def _ran(self, verb: str, node: str, outcome: str) -> None:
        self.take(all_ok(self.state.nodes[node], self.now, outcome))

    def _boot(self, verb: str, node: str) -> None:
        self.boots[node] = self.boots.get(node, 0) + 1
        self._say(node, EventKind.STARTED)

    def _say(self, node: str, kind: EventKind, **more: Any) -> None:
        self.events += 1
        boot = f"boot{self.boots.get(node, 0)}"
        more = {"version": self.versions.get(node, ""), **more}
        self.take(NodeEvent(self.events, node, boot, self.events, self.now, kind, **more))

    def _version(self, verb: str, node: str, version: str) -> None:
        self.versions[node] = version

    def _slurm(self, verb: str, *nodes: str) -> None:
        self.slurm = FakeSlurm(*nodes)

    def _job(self, verb: str, job: str, *words: str) -> None:
        facts: dict[str, Any] = dict(w.split("=") for w in words if "=" in w)
        for name in ("batch", "requeueable"):
            facts[name] = facts.get(name, "yes") == "yes"
        facts["restarts"] = int(facts.get("restarts", self.slurm.held[job].restarts if job in self.slurm.held else 0))
        self.slurm.place(job, *(w for w in words if "=" not in w), **facts)

    def _end(self, verb: str, job: str, state: str = "COMPLETED") -> None:
        self.slurm.end(job, state)

    def _drain(self, verb: str, node: str, *reason: str) -> None:
        self.slurm.set_drain(node, " ".join(reason), "olga")

    def _resume(self, verb: str, node: str) -> None:
        self.slurm.resume(node)

    def _maintenance(self, verb: str, node: str, how: str, *reason: str) -> None:
        self.take(
            OperatorCommand("maintenance_on" if how == "on" else "maintenance_off", node, "olga", " ".join(reason))
        )

    def _breaker(self, verb: str, how: str, *reason: str) -> None:
        self.take(OperatorCommand("close_breaker", "", "olga", " ".join(reason)))

    def _order(self, verb: str, what: Verb, node: str, *words: str) -> None:
        named = dict(w.split("=", 1) for w in words if w.startswith(("until=", "fault=")))
        reason = " ".join(w for w in words if not w.startswith(("until=", "fault=")) and w != "now")
        until = self.now + timedelta(seconds=float(named["until"])) if "until" in named else None
        more = {"fault": named.get("fault", ""), "until": until, "at_once": "now" in words}
        self.take(OperatorCommand(what, "" if node == "-" else node, "olga", reason, **more))

    def _incident(self, verb: str, how: str, incident: str, *reason: str) -> None:
        self.take(OperatorCommand("close_incident", "", "olga", " ".join(reason), incident=incident))

    def _silent(self, verb: str, *nodes: str) -> None:
        self.take(ContactChanged(lost=nodes))

    def _heard(self, verb: str, *nodes: str) -> None:
        self.take(ContactChanged(back=nodes))

    def _reboot(self, verb: str, node: str) -> None:
        self.slurm.set_drain(node, "kernel update, olga", "olga")
        self.slurm.set_flag(node, "reboot_issued", True)

    def _up(self, verb: str, node: str) -> None:
        self.slurm.set_flag(node, "reboot_issued", False)
        self.slurm.resume(node)

    def _power_down(self, verb: str, node: str) -> None:
        self.slurm.set_flag(node, "powering_down", True)
        self.slurm.resume(node)

    def _power_up(self, verb: str, node: str) -> None:
        self.slurm.set_flag(node, "powering_down", False)

    def _lose(self, verb: str, node: str) -> None:
        self.slurm.set_down(node, "Not responding")

    def _find(self, verb: str, node: str) -> None:
        self.slurm.set_up(node)

    def _maint(self, verb: str, node: str, how: str) -> None:
        self.slurm.set_flag(node, "maint", how == "on")

    def _reserve(self, verb: str, name: str, *nodes: str) -> None:
        self.slurm.reserved = (*self.slurm.reserved, ReservationView(name, nodes))

    def _share(self, verb: str, node: str, *words: str) -> None:
        self.slurm.places[node] = (*self.slurm.places.get(node, ()), " ".join(words))

    def _fleet(self, verb: str) -> None:
        b = self.state.breaker
        self.out.append(f"breaker: open ({b.why})" if b.is_open else "breaker: closed")
        for i in self.state.fleet_incidents:
            self.out.append(f"incident {i.id}: {i.fault} on {i.nodes} nodes, {i.shared or 'nothing shared'}")
        for node in drain_limits.held(self.state):
            assert node.drain is not None
            self.out.append(f"held: {node.node} {node.drain.severity.name.lower()} ({node.drain.queued_reason})")

    def _undrain(self, verb: str, node: str) -> None:
        self.take(OperatorCommand("undrain", node, "olga"))

    def _scheduler(self, verb: str, how: str) -> None:
        self.slurm.down = how == "down"

    def _see(self, verb: str) -> None:
        self.now += timedelta(seconds=1)
        try:
            seen = SchedulerSeen(self.now, *asyncio.run(self._views()))
        except SchedulerError as error:
            if not isinstance(error, SchedulerRefused):
                self.take(SchedulerFailed(str(error)))
            return
        self.take(seen)
        for found in liveness.lost(self.state, seen.nodes):
            self.events += 1
            kind, boot = EventKind(found.kind), liveness.CONTROLLER_BOOT
            severity = Severity.CRITICAL if found.fault == liveness.NODE_LOST else Severity.WARNING
            what = (liveness.CHECK, liveness.PART, found.fault, severity)
            self.take(NodeEvent(self.events, found.node, boot, self.events, self.now, kind, *what))

    async def _views(self) -> Any:
        return await self.slurm.nodes(), await self.slurm.reservations(), await self.slurm.topology()

    def _wait(self, verb: str, seconds: str) -> None:
        self.now += timedelta(seconds=float(seconds))
        for node in tuple(self.state.nodes.values()):
            if node.checks is not None and node.silent_since is None:  # its heartbeats go on
                self.take(replace(node.checks, at=self.now))
        self.take(Tick())

    def _reason(self, verb: str, node: str, user: str, *reason: str) -> None:
        view = self.slurm.views[node]
        self.slurm.views[node] = replace(view, reason=" ".join(reason), reason_by=user)

    def _lose_database(self, verb: str) -> None:
        schema.metadata.drop_all(self.engine)
        schema.metadata.create_all(self.engine)
        self.state, self.steps = self._load(), Steps()

    def _restart(self, verb: str) -> None:
        self.state = self._load()

    def _nodes(self, verb: str) -> None:
        for view in self.slurm.views.values():
            facts = self.state.nodes.get(view.name)
            state = facts.state if facts else "unknown"
            flags = "+".join((view.base, *sorted(view.flags)))
            self.out.append(f"{view.name}: {state}; Slurm: {flags}{' ' + repr(view.reason) if view.reason else ''}")

    def _do(self, verb: str) -> None:
        while intents := self._due():
            asyncio.run(self._try(intents[0]))

    def _due(self) -> list[action_queue.Intent]:
        with self.engine.connect() as connection:
            return action_queue.due(connection, self.now)

    async def _try(self, intent: action_queue.Intent) -> None:
        action, said = intent.action, len(self.slurm.said)
        checked = recheck(self.state, action, self.now, self.policy)
        if checked.then is Then.CANCEL:
            off = await actions.call_off(action, checked.why, self.slurm, tried=intent.attempts > 0)
            words = "called off" if off.outcome is ActionOutcome.CANCELLED else "was done"
            self.out.append(f"{words} {action.id}: {off.text}")
            self.take(off)
            return
        if checked.then is Then.WAIT:
            self.out.append(f"put off {action.id}: {checked.why}")
            with self.engine.begin() as connection:
                action_queue.put_off(connection, action, checked.why, self.now + timedelta(seconds=15))
            return
        with self.engine.begin() as connection:
            action_queue.start(connection, action, self.now)
        try:
            done = await actions.perform(action, self.slurm)
        except SchedulerError as error:
            self.out.append(f"not done {action.id}: {error}")
            with self.engine.begin() as connection:
                action_queue.retry(connection, action, str(error), self.now + timedelta(seconds=1))
            if not isinstance(error, SchedulerRefused):
                self.take(SchedulerFailed(str(error)))
            return
        self.out += [f"  $ {line}" for line in self.slurm.said[said:]]
        self.out.append(f"done {action.id}: {done.outcome}{' (' + done.text + ')' if done.text else ''}")
        self.take(done)

    def _load(self) -> Any:
        with self.engine.connect() as connection:
            return state_store.load(connection)


def blocks(text: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """(comment lines, commands, expected lines) of each block; blocks are parted by an empty line."""
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        head = [line for line in lines if line.startswith("#")]
        body = [line for line in lines if not line.startswith("#")]
        if not body:
            yield head, ["nodes"], []
            continue
        cut = body.index("----") if "----" in body else len(body)
        yield head, body[:cut], body[cut + 1 :]
