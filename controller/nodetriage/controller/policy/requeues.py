"""What becomes of the jobs on a node that is removed: pure.

One requeue for each run of a job, however many of its nodes fail.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy import breaker, drain_limits, evaluate
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainFact,
    DrainStatus,
    JobFacts,
    NodeFacts,
    NodeState,
)
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.scheduler import JobView
from nodetriage.controller.settings.rules import Mode, Policy


def decide(work: UnitOfWork, node: NodeFacts, drain: DrainFact, jobs: Iterable[JobView], policy: Policy) -> None:
    for job in _once_each(jobs):
        if not job.active or job.job == drain.refused_job:  # Slurm requeues what its prolog refused
            continue
        if why := _cannot(job):
            _leave_or_end(work, node, drain, job, why, policy)
        else:
            _requeue(work, node, drain, job, policy)


def warn(work: UnitOfWork, node: NodeFacts, drain: DrainFact, jobs: Iterable[JobView], policy: Policy) -> None:
    """Each job may run on, and gets one message that the node leaves after it."""
    limit_s = policy.requeue.leave_within_s
    text = f"the job may run for {limit_s:g} s more" if limit_s else ""
    for job in _once_each(jobs):
        if job.active:
            warning = _about(ActionKind.WARN, f"warn-{job.job}-{job.restarts}-{drain.incident}", node, drain, job)
            work.act(replace(warning, text=text))


def _once_each(jobs: Iterable[JobView]) -> Iterable[JobView]:
    """A list that names a job twice means it once."""
    return {j.job: j for j in jobs}.values()


def _end_waiting(work: UnitOfWork, policy: Policy) -> None:
    """Requeues the jobs that still run `leave_within_s` after their node was drained for a lesser fault.

    Asks for the drain again, as for a fault that became critical: that reads the jobs that are still there.
    """
    limit_s = policy.requeue.leave_within_s
    if not limit_s or policy.mode is not Mode.ENFORCE or breaker.queued_reason(work.fleet):
        return
    for node in work.out():
        drain = node.drain
        if drain is None or drain.done_at is None or not _waits_for_jobs(node, drain):
            continue
        if work.now - drain.done_at >= timedelta(seconds=limit_s) and evaluate.acting(
            work.fleet, node, work.now, policy
        ):
            drain = replace(drain, requeue=True, status=DrainStatus.ASKED, asks=drain.asks + 1)
            work.put(replace(node, drain=drain))
            work.act(drain_limits.drain_action(node.node, drain, "-requeue"))


def _waits_for_jobs(node: NodeFacts, drain: DrainFact) -> bool:
    """Drained by us, and not empty yet: a node without jobs is no longer Suspect."""
    ours = drain.status is DrainStatus.DONE and not drain.theirs
    return ours and not drain.requeue and node.maintenance is None and node.state is NodeState.SUSPECT


def forget(work: UnitOfWork, action: Action) -> None:
    """It was called off: this run of the job was not requeued."""
    if (job := work.job(action.job)) is not None:
        left = tuple((restarts, at) for restarts, at in job.requeued if restarts != action.restarts)
        work.put_job(replace(job, requeued=left, release_at=None))


def tick(work: UnitOfWork, policy: Policy) -> None:
    """Releases jobs whose back-off is over; forgets old requeues; ends the wait for jobs on drained nodes."""
    _end_waiting(work, policy)
    for job in sorted(work.state.jobs.values(), key=lambda j: j.job):
        if job.release_at is not None:
            if work.now >= job.release_at:
                work.put_job(replace(job, release_at=None))
                work.act(_release(job))
        elif not _recent(job, work.now, policy):
            work.forget_job(job.job)


def _cannot(job: JobView) -> str:
    """Why Slurm would not requeue it (scontrol(1), requeue); "" if it would."""
    if not job.batch:
        return "it is interactive, and Slurm requeues batch jobs only"
    if not job.requeueable:
        return "its user does not want it requeued (--no-requeue)"
    return ""


def _leave_or_end(work: UnitOfWork, node: NodeFacts, drain: DrainFact, job: JobView, why: str, policy: Policy) -> None:
    ends = policy.requeue.interactive == "cancel" and not job.batch
    then = "cancelled" if ends else "left"
    text = f"job {job.job} of {job.user} is {then} on {node.node}: {why}"
    work.notify(NoticeKind.JOB_LEFT, f"{drain.incident}-{job.job}", text, node=node.node, incident=drain.incident)
    if ends:
        work.act(_about(ActionKind.CANCEL, f"cancel-{job.job}-{job.restarts}-{drain.incident}", node, drain, job))


def _about(kind: ActionKind, action_id: str, node: NodeFacts, drain: DrainFact, job: JobView) -> Action:
    return Action(
        id=action_id,
        kind=kind,
        node=node.node,
        incident=drain.incident,
        fault=drain.fault,
        component=drain.component,
        severity=drain.severity,
        job=job.job,
        restarts=job.restarts,
    )


def _requeue(work: UnitOfWork, node: NodeFacts, drain: DrainFact, job: JobView, policy: Policy) -> None:
    facts = work.job(job.job) or JobFacts(job.job)
    if any(restarts == job.restarts for restarts, _ in facts.requeued):
        return
    recent = _recent(facts, work.now, policy)
    capped = len(recent) >= policy.requeue.max_per_job
    # A suspended job comes back held whatever we ask for, and only its suspender knows why.
    hold = capped or bool(recent)
    release_at = None
    if recent and not capped:
        release_at = work.now + timedelta(seconds=policy.requeue.backoff_s * 2 ** (len(recent) - 1))
    incident = drain.incident
    work.put_job(JobFacts(job.job, (*recent, (job.restarts, work.now)), release_at, node.node, incident))
    action_id = f"requeue-{job.job}-{job.restarts}-{incident}"
    work.act(replace(_about(ActionKind.REQUEUE, action_id, node, drain, job), hold=hold))
    breaker.count_action(work, policy.breaker)
    _say(work, node, drain, job, capped, len(recent))


def _say(work: UnitOfWork, node: NodeFacts, drain: DrainFact, job: JobView, capped: bool, before: int) -> None:
    if capped:
        text = f"job {job.job} was requeued {before} times already: it stays held until someone releases it"
    elif job.state == "SUSPENDED":
        text = f"job {job.job} was suspended: Slurm requeues it held"
    else:
        return
    work.notify(NoticeKind.JOB_HELD, f"{job.job}-{job.restarts}", text, node=node.node, incident=drain.incident)


def _release(job: JobFacts) -> Action:
    restarts = job.requeued[-1][0] if job.requeued else 0
    return Action(
        id=f"release-{job.job}-{restarts}-{job.incident}",
        kind=ActionKind.RELEASE,
        node=job.node,
        incident=job.incident,
        job=job.job,
        restarts=restarts,
    )


def _recent(job: JobFacts, now: datetime, policy: Policy) -> tuple[tuple[int, datetime], ...]:
    window = timedelta(seconds=policy.requeue.window_s)
    return tuple((restarts, at) for restarts, at in job.requeued if now - at < window)
