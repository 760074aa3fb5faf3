"""The breaker: when too much fails at once, drains and requeues stop until a person has looked. Pure.

Recoveries, recording and Watch go on. Open, it holds new drains and requeues back; closed again, each of them is
evaluated against the present state.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.fleet_state import BreakerFacts
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import FleetState, OperatorCommand
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import BreakerLimits


def count_failing(work: UnitOfWork, limits: BreakerLimits) -> None:
    """To be called when a node is to be drained."""
    facts = work.fleet.breaker
    if facts.is_open:
        return
    drained = (*work.waiting(), *work.out())
    drains = (n.drain for n in drained if n.drain is not None and not n.drain.theirs and repair.counts(n))
    failing = sum(_counts(facts, drain.wanted_at, work.now, limits) for drain in drains)
    limit = limits.failing_limit(fleet_size(work.fleet))
    if failing >= limit:
        _open(work, f"{limit} nodes to be drained within {limits.window_s:g} s")


def count_action(work: UnitOfWork, limits: BreakerLimits) -> None:
    """To be called for each drain and requeue that is decided."""
    acted = _recent(work, work.fleet.breaker.acted, limits)
    work.set_fleet(breaker=replace(work.fleet.breaker, acted=acted))
    if len(acted) >= limits.max_actions and not work.fleet.breaker.is_open:
        _open(work, f"{limits.max_actions} drains and requeues within {limits.window_s:g} s")


def count_failure(work: UnitOfWork, limits: BreakerLimits) -> None:
    """Call it each time the scheduler does not answer. However long an outage is, it counts once."""
    if work.fleet.breaker.outage_since is not None:
        return
    work.set_fleet(breaker=replace(work.fleet.breaker, outage_since=work.now))
    failed = _recent(work, work.fleet.breaker.failed, limits)
    work.set_fleet(breaker=replace(work.fleet.breaker, failed=failed))
    if len(failed) >= limits.max_scheduler_outages and not work.fleet.breaker.is_open:
        _open(work, f"{limits.max_scheduler_outages} outages of the scheduler within {limits.window_s:g} s")


def answered(work: UnitOfWork) -> None:
    """Call it each time the scheduler answers: an outage ends by itself."""
    if work.fleet.breaker.outage_since is not None:
        work.set_fleet(breaker=replace(work.fleet.breaker, outage_since=None))
        work.ask_limits = True


def count_silent(work: UnitOfWork, limits: BreakerLimits) -> None:
    """To be called when agents fell silent."""
    facts = work.fleet.breaker
    if facts.is_open:
        return
    awake = (n for n in work.nodes() if n.maintenance is None and not n.asleep and repair.counts(n))
    silent = sum(n.silent_since is not None and _counts(facts, n.silent_since, work.now, limits) for n in awake)
    if silent >= limits.silent_limit(fleet_size(work.fleet)):
        _open(work, f"{silent} agents fell silent within {limits.window_s:g} s: the network, or this controller?")


def close(work: UnitOfWork, command: OperatorCommand) -> bool:
    """False where it was not open, or no reason is given."""
    facts = work.fleet.breaker
    if not facts.is_open or not command.reason.strip():
        return False
    work.set_fleet(
        breaker=BreakerFacts(
            closed_at=work.now, closed_by=command.actor, closed_why=command.reason, outage_since=facts.outage_since
        )
    )
    work.notify(NoticeKind.BREAKER_CLOSED, work.stamp, f"breaker closed by {command.actor}")
    work.ask_limits = True
    return True


def open_by_hand(work: UnitOfWork, command: OperatorCommand) -> str:
    """An operator stops drains and requeues. Returns why not, "" if done."""
    if work.fleet.breaker.is_open:
        return f"the breaker is open already: {work.fleet.breaker.why}"
    if not command.reason.strip():
        return "give a reason with --reason: others will read it"
    _open(work, f"{command.actor}: {command.reason[:500]}")
    return ""


def queued_reason(state: FleetState) -> str:
    """For a drain that waits for a person, or for the end of a pause; "" where nothing holds it."""
    if state.pause is not None:
        return f"{state.pause.actor} paused drains until {state.pause.until:%Y-%m-%d %H:%M} UTC: {state.pause.reason}"
    return f"the breaker is open ({state.breaker.why})" if state.breaker.is_open else ""


def fleet_size(state: FleetState) -> int:
    """Nodes that the scheduler has; those that we know of where it has not been read."""
    return state.sizes.get("", len(state.nodes))


def _open(work: UnitOfWork, why: str) -> None:
    work.set_fleet(breaker=replace(work.fleet.breaker, opened_at=work.now, why=why))
    text = f"breaker open: {why}; no drain and no requeue until `nodetriagectl breaker close --reason WHY`"
    work.notify(NoticeKind.BREAKER_OPENED, work.stamp, text)
    work.ask_limits = True


def _recent(work: UnitOfWork, times: tuple[datetime, ...], limits: BreakerLimits) -> tuple[datetime, ...]:
    facts = work.fleet.breaker
    return tuple(at for at in (*times, work.now) if _counts(facts, at, work.now, limits))


def _counts(facts: BreakerFacts, at: datetime, now: datetime, limits: BreakerLimits) -> bool:
    """A person who closed it knew of all that was before."""
    return now - at < timedelta(seconds=limits.window_s) and (facts.closed_at is None or at > facts.closed_at)
