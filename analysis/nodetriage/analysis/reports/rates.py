"""The reports `mttf` and `rates`: how often jobs fail, by size, by cause and over time."""

import polars as pl

from nodetriage.analysis.history import missing, rates, rates_over_time
from nodetriage.analysis.history.study import FAILED, Study
from nodetriage.analysis.models import mttf
from nodetriage.analysis.models.figure import Figure
from nodetriage.analysis.reports.placement import placement_sections
from nodetriage.analysis.reports.section import Section, of_figures

_PROJECTED_GPUS = (1024, 4096, 16_384, 131_072)


def mttf_report(study: Study) -> list[Section]:
    """MTTF per size, r_f, where the model does not fit, projections, and other clusters."""
    buckets = rates.by_size(study.jobs, study.window, FAILED)
    fleet = study.fleet_rate
    rf = fleet.rf.value
    rows = [
        (
            b.gpus,
            b.runs,
            b.failures,
            b.run_h,
            *_bounds(b.job_mttf),
            *_bounds(b.node_mttf),
            mttf.theory_h(b.mean_nodes, rf) if rf > 0 and b.run_h else None,
        )
        for b in buckets
    ]
    columns = ["job_mttf_h", "job_mttf_low_h", "job_mttf_high_h"]
    columns += ["node_mttf_days", "node_mttf_low_days", "node_mttf_high_days", "model_mttf_h"]
    schema = {"gpus": pl.String, "runs": pl.Int64, "failures": pl.Int64, "run_h": pl.Float64}
    table = pl.DataFrame(rows, schema=schema | dict.fromkeys(columns, pl.Float64), orient="row")
    alarms = tuple(m.text for m in rates.misfits(buckets, rf))
    notes = (
        "job_mttf: hours that a job of the size runs to a failure; node_mttf: node-days to a failure; 90 % intervals",
        "no failure: the low end is a lower bound, the rest is unknown",
        f"model_mttf_h (model): 24/(N r_f), r_f of jobs above {fleet.larger_than_gpus} GPUs",
        "an alarm where the interval excludes the model; one bucket in ten does so by chance",
    )
    sizes = Section("mttf_by_size", "Mean time to failure by job size", table, notes, alarms)
    return [sizes, _fleet(study), _projections(study), _published(study)]


def rates_report(study: Study) -> list[Section]:
    """Failures by cause in three units, the rolling rate, and the days on which a check first reported."""
    study.progress("failure rates by cause")
    category = pl.col("category")
    per_node = study.settings.rates.gpus_per_node
    causes = rates_over_time.by_category(study.jobs, study.window, FAILED, category, per_node)
    larger = study.fleet_rate.larger_than_gpus
    rolling = rates_over_time.rolling(study.jobs, study.window, FAILED, category, larger_than_gpus=larger)
    firsts = rates_over_time.check_annotations(study.history.events, study.window)
    days = rates_over_time.ROLLING_DAYS
    return [
        Section(
            "rates_by_category",
            "Failure rates by cause, all jobs",
            causes,
            (
                f"three units of one rate; 1 per GPU-hour is {24_000 * per_node:,} per 1000 node-days of {per_node}"
                " GPUs; 90 % intervals",
            ),
        ),
        Section(
            "rates_rolling",
            f"Failure rate by cause, {days} days rolling, jobs above {larger} GPUs",
            _wide(rolling),
            ("failures per 1000 node-days of the days up to each day; only full windows",),
        ),
        Section(
            "checks_first_seen",
            "Checks and faults that first reported in this period",
            firsts,
            ("a step in the rate on such a day may come from the new check, not from a new fault",),
        ),
        *placement_sections(study),
    ]


def _wide(rolling: pl.DataFrame) -> pl.DataFrame:
    """day, all, and a column for each cause; the latest day first."""
    if rolling.is_empty():
        return pl.DataFrame(schema={"day": pl.Date, "all": pl.Float64})
    wide = rolling.pivot("category", index="day", values="per_1000_node_days").sort("day", descending=True)
    causes = [c for c in wide.columns if c != "day"]
    return wide.select("day", pl.sum_horizontal(causes).alias("all"), *causes)


def _fleet(study: Study) -> Section:
    fleet = study.fleet_rate
    figures = [fleet.rf]
    if fleet.rf.value > 0:
        per_gpu_hour = rates.per_gpu_hour(fleet.rf.value, study.settings.rates.gpus_per_node)
        figures.append(Figure("r_f", per_gpu_hour, "per GPU-hour", "measured"))
    if fleet.burst.cv is not None:
        text = "1 for failures that come one by one"
        figures.append(Figure("CV of times between failures", fleet.burst.cv, "", "measured", notes=(text,)))
    section = of_figures("fleet_rate", f"Failure rate of jobs above {fleet.larger_than_gpus} GPUs (r_f)", figures)
    over = [f"over {fleet.failures:,} failures in {fleet.node_days:,.1f} node-days"]
    if not missing.has_events(study.history):
        over.append(f"r_f is {missing.LOWER_BOUND}")
    return Section(section.name, section.title, section.table, (*over, *section.notes))


def _projections(study: Study) -> Section:
    fleet, per_node = study.fleet_rate, study.settings.rates.gpus_per_node
    figures = []
    for gpus in _PROJECTED_GPUS if fleet.rf.value > 0 else ():
        nodes = mttf.nodes_for(gpus, per_node)
        found = mttf.projection(nodes, fleet.rf.value, fleet.largest_nodes)
        figures.append(Figure(f"{found.name}, {gpus:,} GPUs", found.value, found.unit, found.kind, notes=found.notes))
    return of_figures("mttf_projected", "Projected job-level MTTF (model)", figures, model=True)


def _published(study: Study) -> Section:
    rf = study.fleet_rate.rf
    rows = [(c.cluster, c.rf_per_1000_node_days, c.ratio, c.differs, c.about) for c in rates.compare(rf)]
    schema = {
        "cluster": pl.String,
        "rf_per_1000_node_days": pl.Float64,
        "own_over_theirs": pl.Float64,
        "outside_own_interval": pl.Boolean,
        "about": pl.String,
    }
    notes = ("these clusters do not count the same events; compare orders of magnitude only",)
    return Section("published_clusters", "Other clusters", pl.DataFrame(rows, schema=schema, orient="row"), notes)


def _bounds(figure: Figure) -> tuple[float, float | None, float | None]:
    return figure.value, figure.low, figure.high
