"""What a Slurm hook asks: may this job start, what did it see, how is the node. Reads no device and calls no Slurm.

The prolog has the checks of its list (`prolog_checks`) run anew in the warm workers and takes the others as they were
seen last. A check that hangs, is broken, or was seen too long ago makes the node unknown, never well, and refuses no
job. hook_authority.py decides for which findings one is refused.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from nodetriage.agent.check_scheduler import CheckScheduler, Record
from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.agent.settings.config import CHEAP, COMMANDS, HookSettings
from nodetriage.agent.site_commands import WORKER
from nodetriage.agent.slurm import hook_log
from nodetriage.agent.slurm.hook_authority import Authority, Refusals, Ruling, Standing, rule
from nodetriage.agent.slurm.hook_log import HookLog, Note
from nodetriage.agent.slurm.known import LOOKED, Grave, Known, facts, known, line, plain
from nodetriage.checks.model import Outcome, Scalar, Severity

VERBS = ("prolog", "epilog", "health")
MOST_JOBS = 512  # remembered with their start, for the epilog
JOB_COUNTS_S = 600.0  # after its prolog; from then on its control group shows whether it is here
SAME_EVERY_S = 300.0  # a reason to let jobs in is logged once in this time, with the number of jobs
SHARE = 0.9  # of the deadline in which the checks have to answer
AFTERWARDS = {
    "prolog": "this job did not start here, and Slurm puts it back into the queue",
    "epilog": "this job has ended, and Slurm drains the node",
}


@dataclass(frozen=True, slots=True)
class Jobs:
    """When each job's prolog began (CLOCK_BOOTTIME), by its id."""

    boot_id: str
    began_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookMemory:
    """What an earlier run of the agent left, if anything; `jobs` and `refusals` count in their own boot only."""

    jobs: Jobs | None = None
    refusals: Refusals | None = None
    word: Authority | None = None


NOTHING = HookMemory()


class Hooks:
    """Owned by the event loop. `alone`: no controller is set, and the local mode decides."""

    def __init__(
        self,
        settings: HookSettings,
        scheduler: CheckScheduler,
        record: Record,
        clock: Callable[[], float],
        run_dir: Path,
        memory: HookMemory = HookMemory(),
        *,
        alone: bool = True,
    ) -> None:
        self._scheduler = scheduler
        self._record = record
        self._clock = clock
        self._run_dir = run_dir
        self._alone = alone
        self._boot_id = boot_id = scheduler.verdict.boot_id
        jobs, refusals = memory.jobs, memory.refusals
        self._jobs = dict(jobs.began_s) if jobs and jobs.boot_id == boot_id else {}
        self._refusals = refusals if refusals and refusals.boot_id == boot_id else Refusals(boot_id)
        self._word = memory.word
        self._live: dict[str, asyncio.Task[Any]] = {}
        self.on_begin: Callable[[], None] = lambda: None  # a prolog has come
        self._told: dict[str, tuple[float, int]] = {}  # why jobs were let in: when it was logged, jobs since
        self.use(settings)

    def use(self, settings: HookSettings) -> None:
        """New settings. The hooks learn their deadline from a file; without it they wait for a second."""
        self._settings = settings
        try:
            hook_log.tell_hooks(self._run_dir, settings.deadline_s)
        except OSError as error:
            structlog.get_logger().error("hooks do not know their deadline", path=str(self._run_dir), why=str(error))

    def take_word(self, word: Authority) -> None:
        """The controller's word, kept for when the controller cannot be reached."""
        if self._word is None or (word.mode, word.granted) != (self._word.mode, self._word.granted):
            granted = [f.fault for f in word.granted]
            structlog.get_logger().info("hooks: new word", mode=word.mode, granted=granted, brought_by=word.brought_by)
        self._word = word
        self._record((), {"hook_authority": msgspec.json.encode(word)})

    @property
    def has_job(self) -> bool:
        """Whether a job began within JOB_COUNTS_S and has not ended: its control group may not be there yet."""
        newest_s = max(self._jobs.values(), default=float("-inf"))
        return self._clock() - newest_s < JOB_COUNTS_S

    def status(self) -> dict[str, Any]:
        """For the control socket: the mode in force, and on what it rests."""
        standing, word = self._standing(), self._word
        about = {"mode": standing.mode, "rests_on": "settings" if self._alone else "controller"}
        if word is None or self._alone:
            return about
        return {**about, "fresh": standing.is_heard, "brought_by": word.brought_by, "said_unix_s": word.received_unix_s}

    async def answer(self, verb: str, request: Mapping[str, Any]) -> str:
        """`0 TEXT` or `1 TEXT`: the exit code of the hook and what it prints."""
        self.take_notes()
        if verb == "health":
            found = self._known(())
            return f"{int(bool(found.grave))} {plain(line(found))}"
        job = facts(request)
        if verb == "prolog":
            self._begin(str(job.get("job_id", "")))
        found = self._known(await self._look(verb))
        if verb == "epilog":
            self._end(job, request)
        return self._decide(verb, found, job)

    def _decide(self, verb: str, found: Known, job: Mapping[str, Scalar]) -> str:
        standing = self._standing()
        rulings = [(grave, rule(grave, standing)) for grave in found.grave]
        if not rulings:
            if found.unknown:
                self._tell_seldom(f"{verb} {sorted(found.unknown)}", _event(verb, Outcome.HUNG, _unknown(found, job)))
            return f"0 {plain(line(found))}"
        grave, ruling = min(rulings, key=lambda r: (not r[1].refuse, not r[1].would))
        event = _about(verb, grave, ruling, plain(line(found, grave)), job)
        if ruling.refuse:
            for other, ruled in rulings:
                if ruled.refuse:
                    self._refusals = self._refusals.with_one(other, self._clock())
            self._record([event], {"hook_refusals": msgspec.json.encode(self._refusals)})
        elif ruling.would:
            self._record([event], {})
        else:
            self._tell_seldom(f"{verb} {grave.finding.key} {ruling.why.split(' ago')[0]}", event)
        then = AFTERWARDS[verb] if ruling.refuse else f"no job is refused for it: {ruling.why}"
        return f"{int(ruling.refuse)} {plain(f'{line(found, grave)}; {then}')}"

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

    def _standing(self) -> Standing:
        return Standing(self._alone, self._word, self._refusals, self._settings, self._boot_id, self._clock())

    def _known(self, late: Iterable[str]) -> Known:
        scheduler = self._scheduler
        return known(scheduler.checks, scheduler.verdict.checks, late, self._clock(), self._settings)

    async def _look(self, verb: str) -> list[str]:
        """Runs the hook's list of checks, and those with lines of the kernel's log to judge; returns those that did
        not answer in time. The runs go on by themselves.
        """
        scheduler = self._scheduler
        names = [n for n in self._listed(verb) if not self._just_seen(n)]
        names += [n for n in scheduler.checks if n not in names and scheduler.is_behind(n)]
        for name in names:
            if name not in self._live:  # jobs that start together share a run
                self._live[name] = asyncio.get_running_loop().create_task(self._run(name))
        tasks = {self._live[name] for name in names}
        if not tasks:
            return []
        _done, late = await asyncio.wait(tasks, timeout=self._settings.deadline_s * SHARE)
        return [name for name in names if self._live.get(name) in late]

    def _listed(self, verb: str) -> list[str]:
        asked = self._settings.epilog_checks if verb == "epilog" else self._settings.prolog_checks
        cheap, commands = CHEAP in asked, COMMANDS in asked
        return [
            name
            for name, check in self._scheduler.checks.items()
            if name in asked or (cheap and check.in_prolog) or (commands and check.worker == WORKER)
        ]

    def _just_seen(self, name: str) -> bool:
        seen = self._scheduler.verdict.checks.get(name)
        return seen is not None and seen.outcome in LOOKED and self._clock() - seen.at_s < self._settings.reuse_s

    async def _run(self, name: str) -> None:
        try:
            await self._scheduler.run(name)
        except KeyError:
            return  # a reload has just switched it off
        finally:
            self._live.pop(name, None)

    def _begin(self, job: str) -> None:
        if job:
            self._jobs.pop(job, None)
            self._jobs[job] = self._clock()
            self.on_begin()
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
                finding.component,
                finding.fault,
                finding.severity,
                {**finding.evidence, **job, "seen_by": name, "raised_in_job": finding.raised_s >= began_s},
                finding.occurrences,
            )
            for name, verdict in self._scheduler.verdict.checks.items()
            for finding in verdict.open
            if finding.seen_s >= began_s
        ]
        self._record(changes, self._kept())

    def _started(self, request: Mapping[str, Any]) -> float | None:
        """From Slurm's own clock, which newer versions give (unix seconds)."""
        said = request.get("SLURM_JOB_START_TIME")
        if not isinstance(said, str) or not said.isdecimal():
            return None
        return self._clock() - max(0.0, time.time() - int(said))

    def _tell_seldom(self, key: str, event: Change) -> None:
        """The same reason to let jobs in, for many jobs."""
        now_s = self._clock()
        told_s, jobs = self._told.get(key, (float("-inf"), 0))
        if now_s - told_s < SAME_EVERY_S:
            self._told[key] = told_s, jobs + 1
            return
        self._told = {k: t for k, t in self._told.items() if now_s - t[0] < SAME_EVERY_S}
        self._told[key] = now_s, 0
        self._record([dataclasses.replace(event, evidence={**event.evidence, "same_before": jobs})], {})


def _unknown(found: Known, job: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {**job, "why": plain(line(found)), "refused": False}


def _about(verb: str, grave: Grave, ruling: Ruling, text: str, job: Mapping[str, Scalar]) -> Change:
    """What the hook did, or would have done, about the finding: the controller and the dry-run report take it."""
    evidence = {**job, "check": grave.check, "why": text, "refused": ruling.refuse, "would_refuse": ruling.would}
    if ruling.incident:
        evidence["incident"] = ruling.incident
    if not ruling.refuse:
        evidence["let_in_because"] = plain(ruling.why)
    of = grave.finding
    return Change(Kind.OUTCOME, verb, Outcome.FINDINGS, of.component, of.fault, Severity.WARNING, evidence)


def _evidence(note: Note) -> dict[str, Scalar]:
    job = {"job_id": plain(note.job)} if note.job else {}
    return {"hook": plain(note.hook), "why": plain(note.why), "at_unix_s": note.at, **job}


def _event(name: str, outcome: Outcome, evidence: Mapping[str, Scalar]) -> Change:
    return Change(Kind.OUTCOME, name, outcome, severity=Severity.WARNING, evidence=evidence)
