"""What is true after every step of the policy, whatever the event. Pure.

Tests, simulations and replays check each step and fail; the running controller checks too, logs what is broken, counts
it, and goes on. Each function returns one sentence for each invariant that is broken, and nothing otherwise.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from nodetriage.controller.policy import unit_of_work
from nodetriage.controller.policy.breaker import fleet_size
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.facts.nodes import nodes_of, persistent
from nodetriage.controller.policy.findings import MAX_FINDINGS
from nodetriage.controller.policy.hooks import grants
from nodetriage.controller.policy.state import (
    NEXT,
    Action,
    ActionKind,
    DrainFact,
    DrainStatus,
    Event,
    FleetState,
    NodeEvent,
    NodeFacts,
    NodeState,
    OperatorCommand,
    Step,
)
from nodetriage.controller.settings.rules import DrainLimits, Mode, Policy

T = TypeVar("T")
HOUR = timedelta(hours=1)
_REMOVES = (ActionKind.DRAIN, ActionKind.REQUEUE, ActionKind.CANCEL)


def check_invariants(state: FleetState) -> tuple[str, ...]:
    """Of the whole state. The cost grows with the fleet."""
    return tuple(_fleet(state))


def check_step(before: FleetState, event: Event, step: Step, now: datetime, policy: Policy) -> tuple[str, ...]:
    """Of one step, and of the nodes that it names. The cost does not grow with the fleet."""
    touched = {t.node for t in step.transitions} | {a.node for a in step.actions}
    if isinstance(event, NodeEvent | OperatorCommand):
        touched.add(event.node)
    nodes = (node for name in touched if (node := step.state.nodes.get(name)) is not None)
    return (
        *(broken for node in nodes for broken in _node(node)),
        *_transitions(before, step),
        *_numbers(before, event, step),
        *(broken for action in step.actions for broken in _action(action, step.state, policy)),
        *_new_drains(before, step, now, policy),
        *_hooks(before, step.state, now, policy),
    )


def _fleet(state: FleetState) -> Iterator[str]:
    for name, node in state.nodes.items():
        if node.node != name:
            yield f"{name}: its facts are those of {node.node}"
        yield from _node(node)
    incidents = [n.drain.incident for n in state.nodes.values() if n.drain is not None]
    for incident in _more_than_once([*incidents, *(i.id for i in state.fleet_incidents)]):
        yield f"incident {incident}: it is two incidents"
    for fault in state.fleet_incidents:
        if not fault.fault:
            yield f"fleet incident {fault.id}: it has no fault"
    if state.breaker.is_open and not state.breaker.why:
        yield "breaker: it is open without a reason"
    if state.showing != persistent(unit_of_work.showing(state.nodes.values())):
        yield "showing: it is not what the nodes' findings say"


def _node(node: NodeFacts) -> Iterator[str]:
    drain = node.drain
    if drain is None and node.state in (NodeState.SUSPECT, NodeState.DRAINED):
        yield f"{node.node}: it is {node.state} without a drain"
    if drain is not None:
        if node.state is NodeState.HEALTHY:
            yield f"{node.node}: it is Healthy with a drain"
        for broken in _drain(drain):
            yield f"{node.node}: its drain {broken}"
    if len(node.findings) > MAX_FINDINGS:
        yield f"{node.node}: it has {len(node.findings)} findings, more than {MAX_FINDINGS}"
    for key in _more_than_once(f.key for f in node.findings):
        yield f"{node.node}: finding {key} is there twice"


def _drain(drain: DrainFact) -> Iterator[str]:
    if not drain.incident or not drain.causes:
        yield "has no incident or no cause"
    if (drain.status is DrainStatus.WANTED) != bool(drain.queued_reason):
        yield f"is {drain.status}, and the reason why it is held is {drain.queued_reason!r}"
    if drain.status in (DrainStatus.DONE, DrainStatus.RETURNING) and drain.done_at is None:
        yield f"is {drain.status}, and was never done"
    if drain.theirs and drain.status in (DrainStatus.WANTED, DrainStatus.RETURNING):
        yield f"is another's, and {drain.status}"


def _transitions(before: FleetState, step: Step) -> Iterator[str]:
    """Allowed, each from where the last one ended, and all that changed a state."""
    states = {t.node: n.state if (n := before.nodes.get(t.node)) else None for t in step.transitions}
    for t in step.transitions:
        if t.before != states[t.node]:
            yield f"{t.node}: a transition leaves {t.before}, and the node is {states[t.node]}"
        if t.before is not None and t.after not in NEXT[t.before]:
            yield f"{t.node}: {t.before} -> {t.after} is not allowed"
        if not t.cause or not t.actor:
            yield f"{t.node}: {t.before} -> {t.after} has no cause or no actor"
        states[t.node] = t.after
    for name, state in states.items():
        if (node := step.state.nodes.get(name)) is None or node.state is not state:
            yield f"{name}: its last transition enters {state}, and it is {node.state if node else 'unknown'}"


def _numbers(before: FleetState, event: Event, step: Step) -> Iterator[str]:
    if step.state.cursor < before.cursor or step.state.incidents < before.incidents:
        yield "the cursor or the number of incidents goes back"
    for name in _more_than_once([*(a.id for a in step.actions), *(n.id for n in step.notices)]):
        yield f"{name}: it is decided twice in one step"
    if (step.reply is not None) != isinstance(event, OperatorCommand):
        yield "a command has no reply, or something else has one"


def _action(action: Action, state: FleetState, policy: Policy) -> Iterator[str]:
    node = state.nodes.get(action.node)
    drain = node.drain if node else None
    if action.kind in _REMOVES:
        if policy.mode is not Mode.ENFORCE:
            yield f"{action.id}: decided in mode {policy.mode}"
        if node is None or drain is None or drain.incident != action.incident:
            yield f"{action.id}: {action.node} has no drain of incident {action.incident}"
        elif action.kind is ActionKind.DRAIN and node.maintenance is not None:
            yield f"{action.id}: {action.node} is in maintenance"
    if action.kind is ActionKind.UNDRAIN:
        if drain is None or drain.theirs or drain.status is not DrainStatus.RETURNING:
            yield f"{action.id}: the drain of {action.node} is not ours to lift"
        elif drain.causes and any(
            f.fault in drain.causes and not f.accepted for f in (node.open_findings if node else ())
        ):
            yield f"{action.id}: a fault that drained {action.node} is still there"


def _hooks(before: FleetState, after: FleetState, now: datetime, policy: Policy) -> Iterator[str]:
    """Grants that this step gives: in mode enforce, and to no more nodes than the limit."""
    if after.hooks is before.hooks:
        return
    new = [n for n, f in after.hooks.items() if f.granted and not (n in before.hooks and before.hooks[n].granted)]
    if not new:
        return
    if grants.mode(policy) is not Mode.ENFORCE or after.breaker.is_open:
        yield f"{new[0]}: its hooks may refuse jobs although they only observe, or the breaker is open"
    if len(used := grants.used(after, now, policy.hooks)) > policy.hooks.max_nodes:
        yield f"the hooks of {len(used)} nodes may refuse jobs, more than {policy.hooks.max_nodes}"


def _new_drains(before: FleetState, step: Step, now: datetime, policy: Policy) -> Iterator[str]:
    """Drains that this step lets through: with a cause, within the limits, and none while the breaker is open.

    A drain with a job is Slurm's already, for a job that our hook refused: what is asked for is the reason.
    """
    new = [a for a in step.actions if a.kind is ActionKind.DRAIN and not a.job and _is_new(before, step.state, a)]
    new = [a for a in new if not _at_once(step.state, a)]
    if not new:
        return
    if before.breaker.is_open and step.state.breaker.is_open:
        yield f"{new[0].id}: a drain is let through while the breaker is open"
    if any(not _of(step.state, a).witnessed for a in new):
        yield from _over(step.state, now, policy.drain_limits)
    for action in new:
        old, node = before.nodes.get(action.node), step.state.nodes.get(action.node)
        if (
            (old is None or old.drain is None)
            and node is not None
            and not node.open_findings
            and not _of(step.state, action).ordered_by
        ):
            yield f"{action.id}: {action.node} has no open finding"


def _of(state: FleetState, action: Action) -> DrainFact:
    drain = state.nodes[action.node].drain
    assert drain is not None
    return drain


def _at_once(state: FleetState, action: Action) -> bool:
    """An operator ordered it past the limits, the breaker and a pause."""
    return _of(state, action).at_once


def _over(state: FleetState, now: datetime, limits: DrainLimits) -> Iterator[str]:
    """Of drains for faults that are not witnessed; the others have larger limits of their own."""
    known, size = nodes_of(state.nodes), fleet_size(state)
    nodes = [known[name] for name in known.out]
    recent = {a.node for a in state.admitted if now - a.at < HOUR and not (a.witnessed or a.refused)}
    recent = {name for name in recent if name in known and repair.counts(known[name])}
    if len(recent) > limits.max_drains_per_hour:
        yield f"{len(recent)} drains within an hour, more than {limits.max_drains_per_hour}"
    in_repair = {n.node for n in repair.pool(nodes, now, limits, size)}
    out = [n for n in nodes if n.drain is not None and repair.is_out(n) and n.node not in in_repair]
    new = sum(n.drain is not None and not (n.drain.witnessed or n.drain.refused_job) for n in out)
    if new > limits.max_nodes:
        yield f"{new} nodes newly drained at once, more than {limits.max_nodes}"


def _is_new(before: FleetState, after: FleetState, action: Action) -> bool:
    """Not the second drain of a node that is out of work already, which asks for its jobs only."""
    old, node = before.nodes.get(action.node), after.nodes.get(action.node)
    was_out = old is not None and old.drain is not None and old.drain.done_at is not None
    return node is not None and node.drain is not None and not was_out


def _more_than_once(values: Iterable[T]) -> Iterator[T]:
    return (value for value, count in Counter(values).items() if count > 1)
