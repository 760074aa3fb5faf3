"""What an operator orders for the whole fleet: a pause without drains, which has an end. Pure."""

from datetime import timedelta

from nodetriage.controller.policy.fleet_state import PauseFact
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.orders.command import OperatorCommand
from nodetriage.controller.policy.unit_of_work import UnitOfWork

LONGEST_PAUSE = timedelta(days=7)


def pause(work: UnitOfWork, event: OperatorCommand) -> str:
    """No drain and no requeue until then. Returns why not, "" if done."""
    if not event.reason.strip():
        return "give a reason with --reason: others will read it"
    if event.until is None or event.until <= work.now:
        return "give an end that lies ahead with --until: 2h, or a UTC time"
    if event.until - work.now > LONGEST_PAUSE:
        return f"the end lies more than {LONGEST_PAUSE.days} days ahead; pause again later if you must"
    work.set_fleet(pause=PauseFact(work.now, event.until, event.actor, event.reason[:500]))
    text = f"{event.actor} paused drains and requeues until {event.until:%Y-%m-%d %H:%M} UTC: {event.reason[:500]}"
    work.notify(NoticeKind.PAUSED, work.stamp, text)
    work.ask_limits = True
    return ""


def unpause(work: UnitOfWork, event: OperatorCommand) -> str:
    if work.fleet.pause is None:
        return "drains are not paused"
    _end(work, f"{event.actor} ended the pause: drains and requeues go on")
    return ""


def tick(work: UnitOfWork) -> None:
    """Ends a pause whose time is over."""
    if work.fleet.pause is not None and work.now >= work.fleet.pause.until:
        _end(work, f"the pause by {work.fleet.pause.actor} is over: drains and requeues go on")


def _end(work: UnitOfWork, text: str) -> None:
    work.set_fleet(pause=None)
    work.notify(NoticeKind.PAUSE_ENDED, work.stamp, text)
    work.ask_limits = True
