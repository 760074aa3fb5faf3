"""What another policy would do with the stored inputs: the policy over its own history. Pure, and nothing acts.

With the policies that were in force it comes to exactly what was done. With another one the world must be imagined
where it would have gone another way: what is asked for is done a minute later unless the history says when; a drain
that was never made is seen in each later view of the scheduler, and one that this policy did not make is not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodetriage.controller.policy import transition as reconciler
from nodetriage.controller.policy.notices import Notice, NoticeKind
from nodetriage.controller.policy.reason import parse_reason, reason_text
from nodetriage.controller.policy.state import (
    Action,
    ActionDone,
    ActionKind,
    ActionOutcome,
    DrainStatus,
    Event,
    FleetState,
    NodeState,
    SchedulerSeen,
    Step,
    Tick,
)
from nodetriage.controller.policy.verify.invariants import check_invariants, check_step
from nodetriage.controller.settings.rules import Policy

ASSUMED_AFTER = timedelta(seconds=60)  # an action is done then, where the history does not say
TICK_EVERY = timedelta(seconds=60)  # between what is recorded, where another policy may wait for other times
_DEEDS = (ActionKind.DRAIN, ActionKind.UNDRAIN, ActionKind.REQUEUE, ActionKind.RELEASE, ActionKind.CANCEL)


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """What the policy took in one step, and when."""

    at: datetime
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class PolicyLoaded:
    at: datetime
    policy: Policy


Entry = ReplayInput | PolicyLoaded


@dataclass(frozen=True, slots=True)
class History:
    """`entries` from the moment at which the state was `start`, oldest first."""

    start: FleetState
    entries: Iterable[Entry]


@dataclass(frozen=True, slots=True)
class Decided:
    at: datetime
    action: Action


@dataclass(slots=True)
class Outcome:
    """What came of it since `since`. Times in hours are of nodes."""

    actions: list[Decided] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # invariants
    held: int = 0  # drains that had to wait
    held_h: float = 0.0
    dropped: int = 0  # whose fault was gone while they waited
    drained_h: float = 0.0  # nodes out of work by our drains
    state: FleetState = field(default_factory=FleetState)

    def of(self, kind: ActionKind) -> list[Decided]:
        return [d for d in self.actions if d.action.kind is kind]

    def counts(self) -> dict[str, float]:
        """The figures that are compared, by name."""
        return {
            "drains": len(self.of(ActionKind.DRAIN)),
            "nodes_drained": len({d.action.node for d in self.of(ActionKind.DRAIN)}),
            "requeues": len(self.of(ActionKind.REQUEUE)),
            "undrains": len(self.of(ActionKind.UNDRAIN)),
            "shadow": len(self.of(ActionKind.SHADOW)),
            "held": self.held,
            "held_node_hours": round(self.held_h, 2),
            "dropped_while_held": self.dropped,
            "drained_node_hours": round(self.drained_h, 2),
            "breaker_openings": sum(n.kind is NoticeKind.BREAKER_OPENED for n in self.notices),
        }


def run(history: History, policy: Policy | None = None, since: datetime | None = None) -> Outcome:
    """The policy over the history, with `policy` or with those that were in force. What came since `since` counts."""
    replay = _Replay(history.start, policy, since)
    for entry in history.entries:
        replay.take(entry)
    return replay.end()


class _Replay:
    def __init__(self, start: FleetState, policy: Policy | None, since: datetime | None) -> None:
        self.state, self.given, self.since = start, policy, since
        self.policy = policy or Policy()
        self.apart = False  # the world may have gone another way by now
        self.now: datetime | None = None
        self.outcome = Outcome()
        self._pending: dict[tuple[ActionKind, str, str], Decided] = {}
        self._imagined: set[str] = set()  # nodes whose drain is in no view of the scheduler
        self._out_since: dict[str, datetime] = {
            n.node: n.drain.done_at
            for n in start.nodes.values()
            if n.drain is not None and n.drain.done_at is not None and not n.drain.theirs
        }

    def take(self, entry: Entry) -> None:
        if isinstance(entry, PolicyLoaded):
            self.policy = self.given or entry.policy
            self.apart = self.apart or self.policy != entry.policy
            return
        if self.apart:
            self._imagine_until(entry.at)
        for event in entry.events:
            self._take_event(event, entry.at)
        self.now = entry.at

    def end(self) -> Outcome:
        now = self.now
        if now is not None:
            for node, out_since in self._out_since.items():
                self._count_out(node, out_since, now)
            for waiting in self.state.nodes.values():
                if waiting.drain is not None and waiting.drain.status is DrainStatus.WANTED:
                    self._count_held(waiting.drain.wanted_at, now)
        self.outcome.state = self.state
        self.outcome.broken += check_invariants(self.state)
        return self.outcome

    def _take_event(self, event: Event, at: datetime) -> None:
        if isinstance(event, SchedulerSeen) and self.apart:
            event = self._seen(event)
        if isinstance(event, ActionDone):
            mine = self._pending.pop(_key(event.action), None)
            if mine is None and self.apart:
                if event.action.kind is ActionKind.UNDRAIN:
                    self._imagined.add(event.action.node)  # undrained in the world, and not here
                return
            if mine is not None and self.apart:
                event = replace(event, action=mine.action)
                self._imagined.discard(event.action.node)
        self._step(event, at)

    def _step(self, event: Event, at: datetime) -> None:
        before = self.state
        step = reconciler.step(before, event, at, self.policy)
        self.state = step.state
        self.outcome.broken += check_step(before, event, step, at, self.policy)
        self._count(before, step, event, at)

    def _count(self, before: FleetState, step: Step, event: Event, at: datetime) -> None:
        counts = self.since is None or at >= self.since
        if counts:
            self.outcome.notices += step.notices
        for action in step.actions:
            if action.kind in _DEEDS:
                self._pending[_key(action)] = Decided(at, action)
            if counts:
                self.outcome.actions.append(Decided(at, action))
            old = before.nodes.get(action.node)
            if (
                action.kind is ActionKind.DRAIN
                and old is not None
                and old.drain is not None
                and old.drain.queued_reason
            ):
                self._count_held(old.drain.wanted_at, at)
        match event:
            case ActionDone(Action(kind=ActionKind.DRAIN, node=node), ActionOutcome.DONE):
                self._out_since.setdefault(node, at)
        for moved in step.transitions:
            old = before.nodes.get(moved.node)
            if (
                old is not None
                and old.drain is not None
                and old.drain.queued_reason
                and moved.after is NodeState.HEALTHY
            ):
                self.outcome.dropped += counts
            if moved.after is NodeState.HEALTHY and moved.node in self._out_since:
                self._count_out(moved.node, self._out_since.pop(moved.node), at)
                self._imagined.discard(moved.node)

    def _count_out(self, node: str, out_since: datetime, until: datetime) -> None:
        begin = max(out_since, self.since) if self.since else out_since
        self.outcome.drained_h += max(0.0, (until - begin).total_seconds() / 3600)

    def _count_held(self, wanted_at: datetime, until: datetime) -> None:
        if self.since is None or until >= self.since:
            begin = max(wanted_at, self.since) if self.since else wanted_at
            self.outcome.held += 1
            self.outcome.held_h += (until - begin).total_seconds() / 3600

    def _imagine_until(self, until: datetime) -> None:
        """Time goes by where the history is silent: ticks, and actions that only this policy asked for."""
        now = self.now or until
        while (now := now + TICK_EVERY) < until:
            for key, asked in tuple(self._pending.items()):
                if now - asked.at >= ASSUMED_AFTER and self._pending.get(key) is asked:
                    del self._pending[key]
                    if asked.action.kind is ActionKind.DRAIN:
                        self._imagined.add(asked.action.node)
                    self._step(ActionDone(asked.action, ActionOutcome.DONE, "assumed"), now)
            self._step(Tick(), now)

    def _seen(self, seen: SchedulerSeen) -> SchedulerSeen:
        """The scheduler as it would have been seen after our drains, and without those of the other policy."""
        views = dict(seen.nodes)
        for name, view in seen.nodes.items():
            node = self.state.nodes.get(name)
            drain = node.drain if node else None
            other = parse_reason(view.reason)
            if drain is not None and drain.status is DrainStatus.DONE and not drain.theirs:
                if name in self._imagined or (view.draining and other is not None):
                    reason = reason_text(drain.fault, drain.component, drain.incident)
                    views[name] = replace(view, flags=view.flags | {"drain"}, reason=reason)
            elif other is not None and view.draining:
                views[name] = replace(view, flags=view.flags - {"drain"}, reason="")
        return replace(seen, nodes=views)


def _key(action: Action) -> tuple[ActionKind, str, str]:
    """The action, whatever its incident's id."""
    return (action.kind, action.node, action.job)
