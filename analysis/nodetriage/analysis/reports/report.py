"""What a report is: tables with titles and notes. Each other module of this folder makes some of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from nodetriage.analysis.history import missing as evidence_missing
from nodetriage.analysis.history.history import History, Span
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.reports import attribution, cost, lemons, rates
from nodetriage.analysis.reports.section import Section
from nodetriage.analysis.tables import Problems

REPORTS: Mapping[str, Callable[[Study], list[Section]]] = {
    "mttf": rates.mttf_report,
    "rates": rates.rates_report,
    "ettr": cost.ettr_report,
    "goodput": cost.goodput_report,
    "attribution": attribution.attribution_report,
    "lemons": lemons.lemons_report,
    "false-positives": attribution.false_positives_report,
    "cascades": cost.cascades_report,
}


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a study, with its alarms."""

    name: str
    sections: tuple[Section, ...]

    @property
    def alarms(self) -> tuple[str, ...]:
        return tuple(a for s in self.sections for a in s.alarms)


def make(study: Study, names: tuple[str, ...]) -> list[Report]:
    """The reports by `names`, in that order, after one that describes the input."""
    reports = [Report("input", (input_section(study),))]
    for name in names:
        study.progress(f"report {name}")
        reports.append(Report(name, tuple(REPORTS[name](study))))
    return reports


def job_ids(history: History, job_id: str) -> list[str]:
    """The ids in the history that are `job_id`: more than one where several clusters or users had it."""
    ids = history.jobs.select("job_id").unique()
    asked = (pl.col("job_id") == job_id) | pl.col("job_id").str.starts_with(f"{job_id}@")
    return ids.filter(asked)["job_id"].sort().to_list()


def about_job(study: Study, job_ids: Sequence[str]) -> list[Report]:
    """The attempts of each job, their verdicts and the faults around their ends."""
    found = [Report(f"job {job_id}", tuple(attribution.job_report(study, job_id))) for job_id in job_ids]
    return [Report("input", (input_section(study),)), *found]


def input_section(study: Study) -> Section:
    """The input, and its problems by kind."""
    history = study.history
    rows = [row for source, problems in history.problems.items() for row in _rows(source, problems)]
    schema = {"source": pl.String, "problem": pl.String, "rows": pl.Int64, "left_out": pl.Boolean}
    notes = [
        f"{history.jobs.height:,} runs and {history.events.height:,} events,"
        f" {history.since:%Y-%m-%d %H:%M} to {history.until:%Y-%m-%d %H:%M} UTC ({history.days:.1f} days)",
        *(_covered(kind, span) for kind, span in history.coverage.items() if span.first and span.last),
    ]
    missing = evidence_missing.alarms(history)
    if not rows and not missing:
        notes.append("no problem with the input")
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return Section("input", "Input, and its problems", table, tuple(notes), missing)


def _covered(kind: str, span: Span) -> str:
    return f"{kind}: {span.rows:,} in all, {span.first:%Y-%m-%d %H:%M} to {span.last:%Y-%m-%d %H:%M} UTC"


def _rows(source: str, problems: Problems) -> list[tuple[str, str, int, bool]]:
    kept = [(source, kind, n, False) for kind, n in problems.kept.items()]
    return [*((source, kind, n, True) for kind, n in problems.left_out.items()), *kept]
