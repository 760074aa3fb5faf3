"""The reports `ettr`, `goodput` and `cascades`: what failures cost."""

import polars as pl

from nodetriage.analysis.history import cascades, losses, observed
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.reports.downtime import downtime_sections
from nodetriage.analysis.reports.section import Section
from nodetriage.analysis.tables import TIME


def ettr_report(study: Study) -> list[Section]:
    """Observed ETTR of logical runs, by size, beside the model with each run's own queue time."""
    s = study.settings.observed
    whose = f"QOS {s.qos}" if s.qos else "all QOS (no top priority is set)"
    notes = (
        f"logical runs (all attempts of a job id) of {s.least_training_h:g} h and more, {whose};"
        f" restart {s.restart_min:g} min, checkpoints of {s.checkpoint_write_min:g} min every"
        f" {s.checkpoint_interval_min:g} min",
        "every end that is not COMPLETED counts as an interruption: a lower bound",
        f"ettr_model (model): exact form at the r_f measured of jobs above {study.fleet_rate.larger_than_gpus} GPUs"
        f" ({study.fleet_rate.rf.value:.3g} per 1000 node-days) with the run's own queue time; one run scatters by 1 to"
        " 3 points around it",
    )
    return [
        Section("ettr_by_size", "Observed ETTR by job size", observed.by_size(study.runs), notes),
        Section("ettr_runs", "Observed ETTR of each logical run, the largest first", study.runs),
    ]


def goodput_report(study: Study) -> list[Section]:
    """Lost work by size, direct and second-order, and where each week's GPU hours went."""
    cap = study.settings.cascades.lost_min
    lost = Section(
        "lost_work",
        "Lost work by job size, GPU hours",
        losses.by_size(study.history, study.attributed, study.linked, study.capacity_gpu_h),
        (
            f"min(run time, {cap:g} min) x GPUs",
            "direct: runs that the fleet failed; second order: runs preempted for one that had failed, by the size of"
            " the one that failed",
            "share_of_gpu_time: of what all jobs used; share_of_capacity: of all GPU hours of the"
            f" {study.facts.nodes.len():,} nodes seen",
        ),
    )
    return [lost, _weeks(study), *downtime_sections(study)]


def _weeks(study: Study) -> Section:
    per_node = study.settings.rates.gpus_per_node
    weeks = losses.weeks(study.history, study.attributed, study.linked, study.settings.observed, per_node)
    notes = [f"{name}: {text}" for name, text in losses.BUCKETS.items()]
    notes += ["stragglers and planned stops: not measured", "days: how much of the week belongs to the period"]
    if weeks.is_empty():
        return Section("weeks", "Where each week's GPU hours went", weeks, tuple(notes))
    wide = weeks.pivot("bucket", index="week", values="gpu_h").sort("week")
    first = pl.col("week").cast(TIME)
    held = pl.min_horizontal(first.dt.offset_by("1w"), pl.lit(study.window.until, dtype=TIME)) - pl.max_horizontal(
        first, pl.lit(study.window.since, dtype=TIME)
    )
    wide = wide.with_columns((held.dt.total_microseconds() / 86_400e6).alias("days"))
    capacity = pl.col("days") * 24 * per_node * study.facts.nodes.len()
    return Section(
        "weeks",
        "Where each week's GPU hours went",
        wide.with_columns(capacity.alias("capacity_gpu_h")),
        (*notes, f"capacity_gpu_h: of the {study.facts.nodes.len():,} nodes seen"),
    )


def cascades_report(study: Study) -> list[Section]:
    """The costliest cascades, and preemptions that violated the policy."""
    links = study.linked.links
    guaranteed = study.settings.cascades.guaranteed_h
    soon = links.filter("too_soon")
    rooted = links.filter(pl.col("root").is_not_null())
    total = pl.DataFrame(
        {
            "preemptions": [links.height],
            "preemptor_inferred": [int(links["inferred"].sum())],
            "preemptor_unknown": [links["preempted_by"].null_count()],
            "set_off_by_a_failure": [rooted.height],
            "gpu_h_lost_to_them": [float(rooted["lost_gpu_h"].sum())],
            "preempted_too_soon": [soon.height],
        }
    )
    notes = (
        "a preemptor that the scheduler did not name is inferred: the largest job of another QOS, or of a partition"
        " that takes more than it gives, that took the nodes",
    )
    too_soon = soon.sort(["end_at", "job_id"], descending=[True, False]).select(
        "job_id", "attempt", "gpus", (pl.col("run_s") / 3600).alias("ran_h"), "end_at", "preempted_by", "inferred"
    )
    costliest = cascades.top(study.linked, study.attributed)
    return [
        Section("preemptions", "Preemptions", total, notes),
        Section("cascades", "The costliest cascades: a job fails, restarts and preempts others", costliest),
        Section("preempted_too_soon", f"Preempted before {guaranteed:g} h of run time", too_soon),
    ]
