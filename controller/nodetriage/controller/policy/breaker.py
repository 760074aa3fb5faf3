"""The breaker: when too much fails at once, drains and requeues stop until a person has looked. Pure.

Recoveries, recording and Watch go on. Open, it holds new drains and requeues back; closed again, each of them is
weighed against what is true then.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.fleet_state import BreakerFacts
from nodetriage.controller.policy.limits import BreakerLimits
from nodetriage.controller.policy.state import FleetState, OperatorCommand
from nodetriage.controller.policy.unit_of_work import Turn


def count_failing(turn: Turn, limits: BreakerLimits) -> None:
    """To be called when a node is to be drained."""
    facts = turn.fleet.breaker
    if facts.is_open:
        return
    drains = (n.drain for n in turn.nodes() if n.drain is not None and not n.drain.theirs)
    failing = sum(_counts(facts, drain.wanted_at, turn.now, limits) for drain in drains)
    limit = limits.failing_limit(fleet_size(turn.fleet))
    if failing >= limit:
        _open(turn, f"{limit} nodes to be drained within {limits.window_s:g} s")


def count_action(turn: Turn, limits: BreakerLimits) -> None:
    """To be called for each drain and requeue that is decided."""
    acted = _recent(turn, turn.fleet.breaker.acted, limits)
    turn.set_fleet(breaker=replace(turn.fleet.breaker, acted=acted))
    if len(acted) >= limits.max_actions and not turn.fleet.breaker.is_open:
        _open(turn, f"{limits.max_actions} drains and requeues within {limits.window_s:g} s")


def count_failure(turn: Turn, limits: BreakerLimits) -> None:
    """To be called each time the scheduler did not do what it was asked."""
    failed = _recent(turn, turn.fleet.breaker.failed, limits)
    turn.set_fleet(breaker=replace(turn.fleet.breaker, failed=failed))
    if len(failed) >= limits.max_scheduler_errors and not turn.fleet.breaker.is_open:
        _open(turn, f"{limits.max_scheduler_errors} errors of the scheduler within {limits.window_s:g} s")


def count_silent(turn: Turn, limits: BreakerLimits) -> None:
    """To be called when agents fell silent."""
    facts = turn.fleet.breaker
    if facts.is_open:
        return
    awake = (n for n in turn.nodes() if n.maintenance is None and not n.asleep)
    silent = sum(n.silent_since is not None and _counts(facts, n.silent_since, turn.now, limits) for n in awake)
    if silent >= limits.silent_limit(fleet_size(turn.fleet)):
        _open(turn, f"{silent} agents fell silent within {limits.window_s:g} s: the network, or this controller?")


def close(turn: Turn, command: OperatorCommand) -> bool:
    """False where it was not open, or no reason is given."""
    facts = turn.fleet.breaker
    if not facts.is_open or not command.reason.strip():
        return False
    turn.set_fleet(breaker=BreakerFacts(closed_at=turn.now, closed_by=command.actor, closed_why=command.reason))
    turn.tell(f"notify-breaker-closed-{turn.now:%y%m%d%H%M%S%f}", "", f"breaker closed by {command.actor}")
    turn.ask_brake = True
    return True


def held_why(state: FleetState) -> str:
    """For a drain that waits for a person; "" where none has to come."""
    return f"the breaker is open ({state.breaker.why})" if state.breaker.is_open else ""


def fleet_size(state: FleetState) -> int:
    """Nodes that the scheduler has; those that we know of where it has not been read."""
    return state.sizes.get("", len(state.nodes))


def _open(turn: Turn, why: str) -> None:
    turn.set_fleet(breaker=replace(turn.fleet.breaker, opened_at=turn.now, why=why))
    text = f"breaker open: {why}; no drain and no requeue until `nodetriagectl breaker close --reason WHY`"
    turn.tell(f"notify-breaker-{turn.now:%y%m%d%H%M%S%f}", "", text)
    turn.ask_brake = True


def _recent(turn: Turn, times: tuple[datetime, ...], limits: BreakerLimits) -> tuple[datetime, ...]:
    facts = turn.fleet.breaker
    return tuple(at for at in (*times, turn.now) if _counts(facts, at, turn.now, limits))


def _counts(facts: BreakerFacts, at: datetime, now: datetime, limits: BreakerLimits) -> bool:
    """A person who closed it knew of all that was before."""
    return now - at < timedelta(seconds=limits.window_s) and (facts.closed_at is None or at > facts.closed_at)
