"""What a Slurm hook asks: may this job start, what did it see, how is the node. Reads no device and calls no Slurm.

The prolog runs the cheap checks (`in_prolog`) anew in the warm workers and takes the others as they were seen last. A
check that hangs, is broken, or was seen too long ago makes the node unknown, never well: `when_unknown` decides then.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import structlog

from nodetriage.agent.check_scheduler import CheckScheduler, Record
from nodetriage.agent.core.verdict import Change, CheckVerdict, Kind, OpenFinding
from nodetriage.agent.settings.config import HookSettings
from nodetriage.agent.slurm import hook_log
from nodetriage.agent.slurm.hook_log import HookLog, Note
from nodetriage.checks.model import Check, Outcome, Scalar, Severity
from nodetriage.checks.model.faults import faults, is_trusted

VERBS = ("prolog", "epilog", "health")
MOST_JOBS = 512  # remembered with their start, for the epilog
SAME_EVERY_S = 300.0  # the same reason not to know the node is told once in this time, with how many jobs met it
LINE_LIMIT = 400  # bytes of the answer: Slurm's log takes one line
SHARE = 0.9  # of the deadline in which the checks have to answer

_LOOKED = (Outcome.OK, Outcome.FINDINGS, Outcome.SKIPPED)
_FACTS = {
    "SLURM_JOB_ID": "job_id",
    "SLURM_JOB_UID": "job_uid",
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_GPUS": "job_gpus",
    "SLURM_ARRAY_JOB_ID": "array_job_id",
    "SLURM_ARRAY_TASK_ID": "array_task_id",
    "SLURM_JOB_RESTART_COUNT": "restart_count",
    "SLURM_JOB_EXIT_CODE": "exit_code",
}


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a node when a hook asks. `grave` are (check, finding), the gravest first; `unknown` by check."""

    grave: tuple[tuple[str, OpenFinding], ...]
    unknown: Mapping[str, str]


def known(
    checks: Mapping[str, Check[Any, Any]],
    seen: Mapping[str, CheckVerdict],
    late: Iterable[str],
    now_s: float,
    settings: HookSettings,
    fail_at: Severity,
) -> Known:
    """Pure. `late` are the checks that were asked just now and have not answered; `now_s` is CLOCK_BOOTTIME."""
    held = ((name, h) for name, verdict in seen.items() for h in verdict.open)
    grave = [(name, h) for name, h in held if h.severity >= fail_at and not _ignored(h.fault, settings)]
    grave.sort(key=lambda item: (-item[1].severity, item[1].raised_s))
    late = frozenset(late)
    whys = (
        (name, _why_unknown(check, seen.get(name), name in late, now_s, settings)) for name, check in checks.items()
    )
    return Known(tuple(grave), {name: why for name, why in whys if why})


def _ignored(fault: str, settings: HookSettings) -> bool:
    """Whether the fault refuses no job: the site says so, or it is in shadow."""
    if any(fnmatchcase(fault, pattern) for pattern in settings.never_refuse):
        return True
    return fault not in settings.trusted and not is_trusted(fault)


def _why_unknown(
    check: Check[Any, Any], seen: CheckVerdict | None, late: bool, now_s: float, settings: HookSettings
) -> str:
    if late:
        return "no answer in time"
    if seen is None:
        return "it has not run yet"
    if seen.outcome not in _LOOKED:
        return f"{seen.outcome}: {seen.why}" if seen.why else str(seen.outcome)
    age_s = now_s - seen.at_s
    limit_s = check.every_s * settings.stale_after + check.timeout_s
    return f"it last looked {age_s:.0f} s ago" if age_s > limit_s else ""


def line(found: Known) -> str:
    """One line for Slurm's log and for the person who reads it."""
    if found.grave:
        name, held = found.grave[0]
        fault = faults().get(held.fault)
        title = f": {fault.title}" if fault else ""
        more = f"; and {len(found.grave) - 1} more" if len(found.grave) > 1 else ""
        return f"nodetriage: {held.fault} {held.component} ({held.severity.name.lower()}, {name}){title}{more}"
    if found.unknown:
        (name, why), *rest = found.unknown.items()
        return f"nodetriage: not known: {name}: {why}{f'; and {len(rest)} more' if rest else ''}"
    return "nodetriage: ok"


def plain(text: str) -> str:
    """As one short line of printable ASCII."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:LINE_LIMIT]


def facts(request: Mapping[str, Any]) -> dict[str, Scalar]:
    """What slurmd said of the job, as evidence. Only strings, under names of ours."""
    return {ours: plain(said) for key, ours in _FACTS.items() if isinstance(said := request.get(key), str) and said}


def _evidence(note: Note) -> dict[str, Scalar]:
    job = {"job_id": plain(note.job)} if note.job else {}
    return {"hook": plain(note.hook), "why": plain(note.why), "at_unix_s": note.at, "refused": note.refused, **job}


def _event(name: str, outcome: Outcome, evidence: Mapping[str, Scalar]) -> Change:
    return Change(Kind.OUTCOME, name, outcome, severity=Severity.WARNING, evidence=evidence)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Kept over a restart of the agent: when each job's prolog began (CLOCK_BOOTTIME), by its id."""

    boot_id: str
    began_s: Mapping[str, float] = field(default_factory=dict)


class Hooks:
    """Owned by the event loop. `jobs` is what an earlier run kept, if anything."""

    def __init__(
        self,
        settings: HookSettings,
        scheduler: CheckScheduler,
        record: Record,
        clock: Callable[[], float],
        run_dir: Path,
        jobs: Jobs | None = None,
    ) -> None:
        self._rounds = scheduler
        self._record = record
        self._clock = clock
        self._run_dir = run_dir
        self._boot_id = scheduler.verdict.boot_id
        self._jobs = dict(jobs.began_s) if jobs and jobs.boot_id == self._boot_id else {}
        self._live: dict[str, asyncio.Task[Any]] = {}
        self._told: dict[str, tuple[float, int]] = {}  # why a node was not known: when that was told, jobs since
        self.use(settings)

    def use(self, settings: HookSettings) -> None:
        """New settings. The hooks are told what to do while nobody answers; without that they let jobs start."""
        self._settings = settings
        try:
            hook_log.tell_hooks(self._run_dir, settings.deadline_s, settings.when_unknown == "closed")
        except OSError as error:
            structlog.get_logger().error("hooks not told", path=str(self._run_dir), why=error.strerror)

    async def answer(self, verb: str, request: Mapping[str, Any]) -> str:
        """`0 TEXT` or `1 TEXT`: the exit code of the hook and what it prints."""
        self.take_notes()
        settings, job = self._settings, facts(request)
        if verb == "health":
            found = self._known((), settings.refuse_at)
            return f"{int(bool(found.grave))} {plain(line(found))}"
        fail_at = settings.refuse_at if verb == "prolog" else settings.epilog_fails_at
        if verb == "prolog":
            self._begin(str(job.get("job_id", "")))
        found = self._known(await self._look(verb), fail_at)
        if verb == "epilog":
            self._end(job, request)
        bad = bool(found.grave) or (bool(found.unknown) and settings.when_unknown == "closed")
        refused = bad and settings.mode == "enforce"
        self._tell(verb, found, bad, refused, job)
        return f"{int(refused)} {plain(line(found))}"

    def take_notes(self) -> None:
        """Reports the hooks that got no answer while the agent was away or slow."""
        try:
            taken = hook_log.take(self._run_dir)
        except OSError as error:
            taken = HookLog((), lost=True, why=f"unanswered hooks: {error}")
        evidences = [_evidence(note) for note in taken.notes]
        if taken.lost:
            evidences.append({"why": taken.why or "more hooks had no answer than could be noted"})
        if evidences:
            self._record([_event("hook_unanswered", Outcome.HUNG, evidence) for evidence in evidences], {})

    def _known(self, late: Iterable[str], fail_at: Severity) -> Known:
        scheduler = self._rounds
        return known(scheduler.checks, scheduler.verdict.checks, late, self._clock(), self._settings, fail_at)

    async def _look(self, verb: str) -> list[str]:
        """Runs the cheap checks, and those with lines of the kernel's log to judge; those that did not answer in time.

        The runs go on by themselves.
        """
        also = self._settings.epilog_checks if verb == "epilog" else ()
        scheduler = self._rounds
        names = [n for n, c in scheduler.checks.items() if (c.in_prolog or n in also) and not self._just_seen(n)]
        names += [n for n in scheduler.checks if n not in names and scheduler.is_behind(n)]
        for name in names:
            if name not in self._live:  # jobs that start together share a run
                self._live[name] = asyncio.get_running_loop().create_task(self._run(name))
        tasks = {self._live[name] for name in names}
        if not tasks:
            return []
        _done, late = await asyncio.wait(tasks, timeout=self._settings.deadline_s * SHARE)
        return [name for name in names if self._live.get(name) in late]

    def _just_seen(self, name: str) -> bool:
        seen = self._rounds.verdict.checks.get(name)
        return seen is not None and seen.outcome in _LOOKED and self._clock() - seen.at_s < self._settings.reuse_s

    async def _run(self, name: str) -> None:
        try:
            await self._rounds.run(name)
        except KeyError:
            return  # a reload has just switched it off
        finally:
            self._live.pop(name, None)

    def _begin(self, job: str) -> None:
        if job:
            self._jobs.pop(job, None)
            self._jobs[job] = self._clock()
            while len(self._jobs) > MOST_JOBS:
                del self._jobs[next(iter(self._jobs))]
            self._record((), self._kept())

    def _kept(self) -> dict[str, bytes]:
        return {"jobs": msgspec.json.encode(Jobs(self._boot_id, self._jobs))}

    def _end(self, job: Mapping[str, Scalar], request: Mapping[str, Any]) -> None:
        """Faults that were seen during the job, each tied to it. Without a known start nothing can be tied."""
        began_s = self._jobs.pop(str(job.get("job_id", "")), None) or self._started(request)
        if began_s is None:
            return
        changes = [
            Change(
                Kind.OUTCOME,
                "epilog",
                Outcome.FINDINGS,
                held.component,
                held.fault,
                held.severity,
                {**held.evidence, **job, "seen_by": name, "raised_in_job": held.raised_s >= began_s},
                held.occurrences,
            )
            for name, verdict in self._rounds.verdict.checks.items()
            for held in verdict.open
            if held.seen_s >= began_s
        ]
        self._record(changes, self._kept())

    def _started(self, request: Mapping[str, Any]) -> float | None:
        """From Slurm's own clock, which newer versions give (unix seconds)."""
        said = request.get("SLURM_JOB_START_TIME")
        if not isinstance(said, str) or not said.isdecimal():
            return None
        return self._clock() - max(0.0, time.time() - int(said))

    def _tell(self, verb: str, found: Known, bad: bool, refused: bool, job: Mapping[str, Scalar]) -> None:
        if not bad and not found.unknown:
            return
        evidence: dict[str, Scalar] = {**job, "why": plain(line(found)), "refused": refused}
        if not bad:
            key = f"{verb} {sorted(found.unknown)}"
            told_s, jobs = self._told.get(key, (float("-inf"), 0))
            if self._clock() - told_s < SAME_EVERY_S:
                self._told[key] = told_s, jobs + 1
                return
            self._told = {k: t for k, t in self._told.items() if self._clock() - t[0] < SAME_EVERY_S}
            self._told[key] = self._clock(), 0
            evidence["same_before"] = jobs
        outcome = Outcome.FINDINGS if found.grave else Outcome.HUNG
        self._record([_event(verb, outcome, evidence)], {})
