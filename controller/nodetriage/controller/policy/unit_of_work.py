"""One step of the policy in progress: the state so far, and the step's actions and transitions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from immutables import Map

from nodetriage.controller.policy.facts.nodes import nodes_of, persistent
from nodetriage.controller.policy.fleet_state import AdmittedDrain
from nodetriage.controller.policy.notices import Notice, NoticeKind, Reply
from nodetriage.controller.policy.state import (
    NEXT,
    Action,
    FindingFact,
    FleetState,
    JobFacts,
    NodeFacts,
    NodeState,
    Step,
    Transition,
)

CONTROLLER = "nodetriage"
_NOTHING: Map[str, datetime] = Map()


class IllegalTransition(Exception):
    """A node cannot go from the one state to the other."""


class UnitOfWork:
    """Lives within one call of `policy.step`; what it was made from is never changed."""

    def __init__(self, state: FleetState, now: datetime) -> None:
        self.now = now
        self._state = state
        self._nodes = nodes_of(state.nodes)
        self._jobs = persistent(state.jobs)
        self._showing = persistent(state.showing)
        self._cursor = state.cursor
        self._touched: set[str] = set()
        self._actions: list[Action] = []
        self._transitions: list[Transition] = []
        self._notices: list[Notice] = []
        self.reply: Reply | None = None
        self.ask_limits = False  # room was made, or a limit is another one: all that is held is looked at again
        self.wanting: dict[str, None] = {}  # nodes whose drain was not wanted before

    def step(self) -> Step:
        return Step(
            self.state,
            tuple(self._actions),
            tuple(self._transitions),
            tuple(self._notices),
            self.reply,
            frozenset(self._touched),
        )

    @property
    def state(self) -> FleetState:
        before = self._state
        if self._nodes is not before.nodes or self._jobs is not before.jobs or self._cursor != before.cursor:
            self._state = replace(
                before, nodes=self._nodes, jobs=self._jobs, showing=self._showing, cursor=self._cursor
            )
        return self._state

    @property
    def fleet(self) -> FleetState:
        """For what belongs to no node or job; `state` is whole, at the price of putting it together."""
        return self._state

    def nodes(self) -> tuple[NodeFacts, ...]:
        """All, by name: for what happens rarely."""
        return tuple(self._nodes.values())

    def waiting(self) -> tuple[NodeFacts, ...]:
        """The nodes whose drain is held."""
        return self._of(self._nodes.waiting)

    def out(self) -> tuple[NodeFacts, ...]:
        """The nodes that are drained or about to be."""
        return self._of(self._nodes.out)

    def busy(self) -> tuple[NodeFacts, ...]:
        """The nodes on which something is open or under way: time changes nothing about the others."""
        return self._of(self._nodes.busy)

    def counts(self) -> tuple[int, int]:
        """How many nodes are known, and how many are lemons."""
        return len(self._nodes), len(self._nodes.lemons)

    def _of(self, names: Iterable[str]) -> tuple[NodeFacts, ...]:
        # By name: the order of a map depends on the process, and that of incidents must not.
        return tuple(self._nodes[name] for name in sorted(names))

    def node(self, name: str) -> NodeFacts | None:
        found: NodeFacts | None = self._nodes.get(name)
        return found

    def job(self, name: str) -> JobFacts | None:
        return self._jobs.get(name)

    def put(self, node: NodeFacts) -> NodeFacts:
        before = self._nodes.get(node.node)
        self._touched.add(node.node)
        self._nodes = self._nodes.put(node)
        old, new = before.findings if before else (), node.findings
        if old is not new:
            self._show(node.node, newest(old), newest(new))
        return node

    def showing(self, fault: str) -> Mapping[str, datetime]:
        """The nodes that have this fault now, each with the time when it was last raised there."""
        found: Mapping[str, datetime] = self._showing.get(fault, _NOTHING)
        return found

    def _show(self, node: str, old: Mapping[str, datetime], new: Mapping[str, datetime]) -> None:
        for fault in sorted(old.keys() | new.keys()):
            if old.get(fault) == new.get(fault):
                continue
            nodes = self._showing.get(fault, _NOTHING)
            if fault in new:
                nodes = nodes.set(node, new[fault])
            elif node in nodes:
                nodes = nodes.delete(node)
            if nodes:
                self._showing = self._showing.set(fault, nodes)
            elif fault in self._showing:
                self._showing = self._showing.delete(fault)

    def put_job(self, job: JobFacts) -> None:
        self._jobs = self._jobs.set(job.job, job)

    def forget_job(self, job: str) -> None:
        self._jobs = self._jobs.delete(job)

    def enter(self, name: str, state: NodeState) -> NodeFacts:
        """A node that was never seen."""
        self._transitions.append(Transition(name, None, state, "first seen", CONTROLLER, self.now))
        return self.put(NodeFacts(name, state, self.now))

    def move(self, node: NodeFacts, *path: NodeState, cause: str, actor: str = CONTROLLER) -> NodeFacts:
        """Through each state of `path` in turn; each is a transition of its own. Raises IllegalTransition."""
        for after in path:
            if after not in NEXT[node.state]:
                raise IllegalTransition(f"{node.node}: {node.state} -> {after} ({cause})")
            self._transitions.append(Transition(node.node, node.state, after, cause, actor, self.now))
            node = replace(node, state=after, since=self.now)
        return self.put(node)

    def act(self, action: Action) -> None:
        self._actions.append(action)

    def notify(self, kind: NoticeKind, about: str, text: str, *, node: str = "", incident: str = "") -> None:
        """Adds a notice. `about` and the kind make its id: another notice of the same id is not kept."""
        self._notices.append(Notice(f"notify-{kind}-{about}", kind, text, node, incident))

    @property
    def stamp(self) -> str:
        """`now` for an id of something that may happen again."""
        return f"{self.now:%y%m%d%H%M%S%f}"

    def new_incident(self) -> str:
        """An id that no other incident has; a number in use, given before the database was lost, is skipped."""
        drained = (self._nodes[name].drain for name in (*self._nodes.waiting, *self._nodes.out))
        used = {drain.incident for drain in drained if drain} | {i.id for i in self._state.fleet_incidents}
        number = self._state.incidents + 1
        while (name := self._state.epoch.name(self.now, number)) in used:
            number += 1
        self._state = replace(self._state, incidents=number)
        return name

    def set_fleet(self, **changed: Any) -> None:
        """Changes fields of the fleet's own: breaker, fleet_incidents, reservations, versions."""
        self._state = replace(self._state, **changed)

    def set_sizes(self, sizes: dict[str, int]) -> None:
        if sizes != self._state.sizes:
            self._state = replace(self._state, sizes=sizes)

    def set_cursor(self, cursor: int) -> None:
        self._cursor = max(cursor, self._cursor)

    def set_admitted(self, admitted: tuple[AdmittedDrain, ...]) -> None:
        if admitted != self._state.admitted:
            self._state = replace(self._state, admitted=admitted)


def newest(findings: Iterable[FindingFact]) -> dict[str, datetime]:
    """Fault -> when the latest of its open findings was raised."""
    found: dict[str, datetime] = {}
    for finding in findings:
        if finding.is_open and (finding.fault not in found or found[finding.fault] < finding.raised_at):
            found[finding.fault] = finding.raised_at
    return found


def showing(nodes: Iterable[NodeFacts]) -> dict[str, dict[str, datetime]]:
    """`FleetState.showing` of these nodes."""
    found: dict[str, dict[str, datetime]] = {}
    for node in nodes:
        for fault, at in newest(node.findings).items():
            found.setdefault(fault, {})[node.node] = at
    return found
