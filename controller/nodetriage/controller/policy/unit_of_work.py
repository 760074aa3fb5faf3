"""One step of the policy in progress: the state so far, and the step's actions and transitions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

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


class IllegalTransition(Exception):
    """A node cannot go from the one state to the other."""


class UnitOfWork:
    """Lives within one call of `policy.step`; what it was made from is never changed."""

    def __init__(self, state: FleetState, now: datetime) -> None:
        self.now = now
        self._state = state
        self._nodes: dict[str, NodeFacts] | None = None
        self._jobs: dict[str, JobFacts] | None = None
        self._showing: dict[str, dict[str, datetime]] = {}  # the faults whose nodes changed in this turn
        self._actions: list[Action] = []
        self._transitions: list[Transition] = []
        self._notices: list[Notice] = []
        self.reply: Reply | None = None
        self.ask_limits = False  # something wants to be let through, or room was made

    def step(self) -> Step:
        nodes = self._state.nodes if self._nodes is None else self._nodes
        jobs = self._state.jobs if self._jobs is None else self._jobs
        state = self._state
        if nodes is not state.nodes or jobs is not state.jobs:
            state = replace(state, nodes=nodes, jobs=jobs)
        if self._showing:
            state = replace(state, showing=self._all_showing())
        return Step(state, tuple(self._actions), tuple(self._transitions), tuple(self._notices), self.reply)

    @property
    def state(self) -> FleetState:
        return self.step().state

    @property
    def fleet(self) -> FleetState:
        """For what belongs to no node or job; `state` is whole, at the price of putting it together."""
        return self._state

    def nodes(self) -> tuple[NodeFacts, ...]:
        return tuple((self._state.nodes if self._nodes is None else self._nodes).values())

    def node(self, name: str) -> NodeFacts | None:
        return (self._state.nodes if self._nodes is None else self._nodes).get(name)

    def job(self, name: str) -> JobFacts | None:
        return (self._state.jobs if self._jobs is None else self._jobs).get(name)

    def put(self, node: NodeFacts) -> NodeFacts:
        if self._nodes is None:
            self._nodes = dict(self._state.nodes)
        before = self._nodes.get(node.node)
        self._nodes[node.node] = node
        old, new = before.findings if before else (), node.findings
        if old is not new:
            self._show(node.node, newest(old), newest(new))
        return node

    def showing(self, fault: str) -> Mapping[str, datetime]:
        """The nodes that have this fault now, each with the time when it was last raised there."""
        if (found := self._showing.get(fault)) is not None:
            return found
        return self._state.showing.get(fault, {})

    def _show(self, node: str, old: Mapping[str, datetime], new: Mapping[str, datetime]) -> None:
        for fault in old.keys() | new.keys():
            if old.get(fault) == new.get(fault):
                continue
            nodes = self._showing.setdefault(fault, dict(self._state.showing.get(fault, {})))
            if fault in new:
                nodes[node] = new[fault]
            else:
                nodes.pop(node, None)

    def _all_showing(self) -> Mapping[str, Mapping[str, datetime]]:
        whole = {**self._state.showing, **self._showing}
        return {fault: nodes for fault, nodes in whole.items() if nodes}

    def put_job(self, job: JobFacts) -> None:
        if self._jobs is None:
            self._jobs = dict(self._state.jobs)
        self._jobs[job.job] = job

    def forget_job(self, job: str) -> None:
        if self._jobs is None:
            self._jobs = dict(self._state.jobs)
        del self._jobs[job]

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
        used = {n.drain.incident for n in self.nodes() if n.drain} | {i.id for i in self._state.fleet_incidents}
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
        self._state = replace(self._state, cursor=max(cursor, self._state.cursor))

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
