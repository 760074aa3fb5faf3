"""What a report is: tables with titles and notes. Each other module of this folder makes some of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

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


def about_job(study: Study, job_id: str) -> list[Report]:
    """The attempts of one job, their verdicts and the faults around their ends."""
    found = attribution.job_report(study, job_id)
    return [Report("input", (input_section(study),)), Report(f"job {job_id}", tuple(found))]


def input_section(study: Study) -> Section:
    """The input, and its problems by kind."""
    history = study.history
    rows = [row for source, problems in history.problems.items() for row in _rows(source, problems)]
    schema = {"source": pl.String, "problem": pl.String, "rows": pl.Int64, "left_out": pl.Boolean}
    notes = [
        f"{history.jobs.height:,} runs and {history.events.height:,} events,"
        f" {history.since:%Y-%m-%d %H:%M} to {history.until:%Y-%m-%d %H:%M} UTC ({history.days:.1f} days)",
    ]
    if not rows:
        notes.append("no problem with the input")
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return Section("input", "Input, and its problems", table, tuple(notes))


def _rows(source: str, problems: Problems) -> list[tuple[str, str, int, bool]]:
    kept = [(source, kind, n, False) for kind, n in problems.kept.items()]
    return [*((source, kind, n, True) for kind, n in problems.left_out.items()), *kept]
