"""Does one action through the scheduler: looks first, acts, and looks again. Done is what the scheduler shows.

Because it looks first, an action that was begun and not heard of again is simply begun anew: where it had been done,
that is found, and nothing is done twice.
"""

import asyncio
from collections.abc import Awaitable

from nodetriage.controller.policy.reason import (
    is_hook_error,
    is_schedulers_own,
    lost_to_power_saving,
    parse_reason,
    reason_text,
)
from nodetriage.controller.policy.state import Action, ActionDone, ActionKind, ActionOutcome
from nodetriage.controller.scheduler import (
    JobView,
    NodeView,
    Scheduler,
    SchedulerError,
    SchedulerRefused,
    SchedulerUnavailable,
)
from nodetriage.service.crashpoint import passing

NOTICE_LIMIT_S = 5.0  # for all messages to one job and its user


async def perform(action: Action, scheduler: Scheduler) -> ActionDone:
    """Raises SchedulerError where it could not be done, or could not be seen to be done: it is to be tried again."""
    match action.kind:
        case ActionKind.DRAIN:
            return await _drain(action, scheduler)
        case ActionKind.UNDRAIN:
            return await _undrain(action, scheduler)
        case ActionKind.REQUEUE:
            return await _requeue(action, scheduler)
        case ActionKind.RELEASE:
            return await _release(action, scheduler)
        case ActionKind.CANCEL:
            return await _cancel(action, scheduler)
        case ActionKind.WARN:
            return await _warn(action, scheduler)
        case ActionKind.SHADOW:
            return ActionDone(action, ActionOutcome.DONE)


async def _drain(action: Action, scheduler: Scheduler) -> ActionDone:
    view = await scheduler.node(action.node)
    # A drain with a job is one for which our own hook refused that job: Slurm's word for it is to become ours.
    if not _taken(view, action) or (action.job and is_hook_error(view.reason)):
        await scheduler.drain([action.node], reason_text(action.fault, action.component, action.incident))
        passing("action.after_drain")
        view = await scheduler.node(action.node)
        if not view.draining:
            raise SchedulerUnavailable(f"{action.node} is not draining after the drain: {_words(view)}")
    # Read after the drain: from now on no job can join them.
    jobs = await scheduler.jobs_on(action.node)
    if _is_ours(view, action):
        return ActionDone(action, ActionOutcome.DONE, view.reason, jobs)
    return ActionDone(action, ActionOutcome.THEIRS, f"{view.reason_by}: {view.reason or 'no reason'}", jobs)


async def _undrain(action: Action, scheduler: Scheduler) -> ActionDone:
    view = await scheduler.node(action.node)
    if not view.draining:
        return ActionDone(action, ActionOutcome.GONE, "it was no longer drained")
    if not _is_ours(view, action):
        return ActionDone(action, ActionOutcome.THEIRS, f"{view.reason_by}: {view.reason or 'no reason'}")
    await scheduler.undrain(action.node)
    view = await scheduler.node(action.node)
    if view.draining:
        raise SchedulerUnavailable(f"{action.node} is still draining after the undrain: {_words(view)}")
    return ActionDone(action, ActionOutcome.DONE)


async def _requeue(action: Action, scheduler: Scheduler) -> ActionDone:
    job = await scheduler.job(action.job)
    if over := _over(job, action):
        return ActionDone(action, ActionOutcome.GONE, over)
    try:
        await scheduler.requeue(action.job, hold=action.hold)
    except SchedulerRefused as refused:
        # It may have ended between the look and the word.
        over = _over(await scheduler.job(action.job), action)
        return ActionDone(action, ActionOutcome.GONE if over else ActionOutcome.REFUSED, over or str(refused))
    passing("action.after_requeue")
    job = await scheduler.job(action.job)
    if not _over(job, action):
        raise SchedulerUnavailable(f"job {action.job} is still {job.state if job else 'there'} after the requeue")
    text = f"requeued from {action.node}, {action.fault}, incident {action.incident}"
    await _within_notice_limit(scheduler.comment_job(action.job, text))
    return ActionDone(action, ActionOutcome.DONE, f"{job.state}, restarts {job.restarts}" if job else "")


async def _warn(action: Action, scheduler: Scheduler) -> ActionDone:
    """Tried once and for a short time: no removal waits for it, and no failure of it counts against the scheduler."""
    said = f"{action.node} takes no job after this one: {action.fault}, incident {action.incident}"
    said += f"; {action.text}" if action.text else ""
    if why := await _within_notice_limit(_notice(action, said, scheduler)):
        return ActionDone(action, ActionOutcome.REFUSED, why)
    return ActionDone(action, ActionOutcome.DONE, said)


async def _notice(action: Action, text: str, scheduler: Scheduler) -> None:
    if (job := await scheduler.job(action.job)) is None or _over(job, action):
        raise SchedulerRefused("the job has ended")
    await scheduler.notify_job(action.job, f"nodetriage: {text}. Save what you need.")
    await scheduler.comment_job(action.job, text)
    if job.batch:
        await scheduler.signal_job(action.job)


async def _within_notice_limit(notice: Awaitable[None]) -> str:
    """Why it was not done; "" where it was."""
    try:
        async with asyncio.timeout(NOTICE_LIMIT_S):
            await notice
    except SchedulerError as error:
        return str(error)
    except TimeoutError:
        return f"not done within {NOTICE_LIMIT_S:g} s"
    return ""


async def _release(action: Action, scheduler: Scheduler) -> ActionDone:
    job = await scheduler.job(action.job)
    if job is not None and job.state == "COMPLETING":
        # Its node has not let it go yet; a release would be refused, and the job held for ever.
        raise SchedulerRefused(f"job {action.job} is still COMPLETING on its node")
    if job is None or job.state != "PENDING":
        return ActionDone(action, ActionOutcome.GONE, f"it is {job.state if job else 'gone'}")
    try:
        await scheduler.release(action.job)
    except SchedulerRefused as refused:
        return ActionDone(action, ActionOutcome.REFUSED, str(refused))
    return ActionDone(action, ActionOutcome.DONE)


async def _cancel(action: Action, scheduler: Scheduler) -> ActionDone:
    if over := _over(await scheduler.job(action.job), action):
        return ActionDone(action, ActionOutcome.GONE, over)
    try:
        await scheduler.cancel(action.job)
    except SchedulerRefused as refused:
        return ActionDone(action, ActionOutcome.REFUSED, str(refused))
    job = await scheduler.job(action.job)
    if not _over(job, action):
        raise SchedulerUnavailable(f"job {action.job} is still {job.state if job else 'there'} after it was cancelled")
    return ActionDone(action, ActionOutcome.DONE)


async def call_off(action: Action, why: str, scheduler: Scheduler, *, tried: bool) -> ActionDone:
    """It is no longer wanted. A drain that was tried may have reached the scheduler after all: then it is done.

    Raises SchedulerError where that cannot be seen.
    """
    if tried and action.kind is ActionKind.DRAIN:
        view = await scheduler.node(action.node)
        if view.draining and _has_reason_of(view, action):
            return await _drain(action, scheduler)
    return ActionDone(action, ActionOutcome.CANCELLED, why)


def _taken(view: NodeView, action: Action) -> bool:
    """A person or another tool keeps the node out of work, or this action does already.

    slurmctld's own text is nobody's decision. A drain of ours that another incident began is taken over.
    """
    if is_schedulers_own(view):
        return False
    if action.text and view.draining and lost_to_power_saving(view):
        return False  # a drain of ours whose reason Slurm took away
    if parse_reason(view.reason) is not None:
        return view.draining and _has_reason_of(view, action)
    return view.draining or (view.down and view.reason != "")


def _is_ours(view: NodeView, action: Action) -> bool:
    """The drain is this incident's. Where slurmctld put its own text over our reason, it is nobody else's."""
    return _has_reason_of(view, action) or is_schedulers_own(view)


def _has_reason_of(view: NodeView, action: Action) -> bool:
    ours = parse_reason(view.reason)
    return ours is not None and ours.incident == action.incident


def _over(job: JobView | None, action: Action) -> str:
    """Why there is nothing to requeue any more; "" if there is."""
    if job is None:
        return "the scheduler no longer knows it"
    if job.restarts > action.restarts:
        return f"it was requeued already: restarts {job.restarts}, {job.state}"
    return "" if job.active else f"it is {job.state}"


def _words(view: NodeView) -> str:
    return f"{'+'.join((view.base, *sorted(view.flags)))}, reason {view.reason!r}"
