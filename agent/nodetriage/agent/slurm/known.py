"""What is known of this node when a hook asks, and how a hook says it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from nodetriage.agent.core.verdict import CheckVerdict, OpenFinding
from nodetriage.agent.settings.config import HookSettings
from nodetriage.checks.model import Check, Confidence, Outcome, Scalar, Severity
from nodetriage.checks.model.faults import faults

LINE_LIMIT = 400  # bytes of the answer: Slurm's log takes one line
LOOKED = (Outcome.OK, Outcome.FINDINGS, Outcome.SKIPPED)
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
class Grave:
    """A critical finding. `age_s`: since a run of its check that still stands for it."""

    check: str
    finding: OpenFinding
    age_s: float


@dataclass(frozen=True, slots=True)
class Known:
    """`grave`, the oldest first; `unknown` says by check why it cannot be relied on."""

    grave: tuple[Grave, ...]
    unknown: Mapping[str, str]


def known(
    checks: Mapping[str, Check[Any, Any]],
    seen: Mapping[str, CheckVerdict],
    late: Iterable[str],
    now_s: float,
    settings: HookSettings,
) -> Known:
    """From the enabled `checks` and what they found. `late` are those that were asked just now and have not answered;
    `now_s` is CLOCK_BOOTTIME. What a check found that is no longer enabled does not count."""
    found = ((name, seen[name], f) for name in checks if name in seen for f in seen[name].open)
    grave = [
        Grave(name, finding, _age_s(verdict, finding, now_s))
        for name, verdict, finding in found
        if finding.severity >= Severity.CRITICAL
        and finding.confidence >= Confidence.DEVICE  # a kernel line alone refuses no job
        and not _never(finding.fault, settings)
    ]
    grave.sort(key=lambda g: g.finding.raised_s)
    late = frozenset(late)
    whys = (
        (name, _why_unknown(check, seen.get(name), name in late, now_s, settings)) for name, check in checks.items()
    )
    return Known(tuple(grave), {name: why for name, why in whys if why})


def _never(fault: str, settings: HookSettings) -> bool:
    return any(fnmatchcase(fault, pattern) for pattern in settings.never_refuse)


def _age_s(verdict: CheckVerdict, finding: OpenFinding, now_s: float) -> float:
    """A condition is as old as the last run that saw it; an event that stays true, as the last run of its check."""
    fault = faults().get(finding.fault)
    stays = fault is not None and fault.latching != "no"
    return now_s - (max(finding.seen_s, verdict.at_s) if stays else finding.seen_s)


def _why_unknown(
    check: Check[Any, Any], seen: CheckVerdict | None, late: bool, now_s: float, settings: HookSettings
) -> str:
    if late:
        return "no answer in time"
    if seen is None:
        return "it has not run yet"
    if seen.outcome not in LOOKED:
        return f"{seen.outcome}: {seen.why}" if seen.why else str(seen.outcome)
    age_s = now_s - seen.at_s
    limit_s = check.every_s * settings.stale_after + check.timeout_s
    return f"it last looked {age_s:.0f} s ago" if age_s > limit_s else ""


def line(found: Known, first: Grave | None = None) -> str:
    """One line for Slurm's log and for the person who reads it. `first` is the finding that the hook acts on."""
    if grave := first or (found.grave[0] if found.grave else None):
        fault = faults().get(grave.finding.fault)
        title = f": {fault.title}" if fault else ""
        more = f"; and {len(found.grave) - 1} more" if len(found.grave) > 1 else ""
        of = grave.finding
        return f"nodetriage: {of.fault} {of.component} ({of.severity.name.lower()}, {grave.check}){title}{more}"
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
