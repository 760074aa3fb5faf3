"""The reports `attribution` and `false-positives`: which failure ended which job, and what each check contributes."""

import polars as pl

from nodetriage.analysis.history import cooccurrence, missing
from nodetriage.analysis.history.attribution import INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL
from nodetriage.analysis.history.false_positives import with_share
from nodetriage.analysis.history.fault_table import domain_names
from nodetriage.analysis.history.history import scan_started
from nodetriage.analysis.history.sizes import size_class, size_order
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.reports.section import Section

_BURST_MIN = 10.0
_BURST_NODES = 3


def attribution_report(study: Study) -> list[Section]:
    """Verdicts by jobs and by GPU time, causes, who can be the cause, what fails together, what checks add."""
    found = study.attributed
    jobs = Section(
        "failed_jobs",
        "Jobs that the fleet failed, the latest first",
        _rows(found.infrastructure.sort(["end_at", "job_id"], descending=[True, False])),
        ("domains: who can be the cause, after every signal has ruled out what it can",),
    )
    parts = [_verdicts(study), _by_size(study), _categories(study), *_together(study), _bursts(study)]
    return [*parts, _failed_steps(study), jobs]


def job_report(study: Study, job_id: str) -> list[Section]:
    """What ended one job: each failed attempt's verdict, and every fault on its nodes around its end."""
    ends = study.attributed.ends.filter(pl.col("job_id") == job_id)
    attempts = study.history.jobs.filter(pl.col("job_id") == job_id).sort("start_at")
    causes = study.attributed.causes.join(ends.select("run", "attempt"), on="run").sort("attempt", "first_at")
    return [
        Section(
            "job_attempts",
            f"Attempts of job {job_id}",
            attempts.select(
                "attempt", "state", "exit_code", "start_at", "end_at", "gpus", "node_count", "preempted_by"
            ),
        ),
        Section("job_verdicts", "What ended them", _rows(ends.sort("attempt"))),
        Section(
            "job_causes",
            "Faults on its nodes around its end",
            causes.select(
                "attempt",
                "primary",
                "failed",
                "first_at",
                "node",
                "check",
                "component",
                "fault",
                "xid",
                "severity",
                "events",
                "open",
                "category",
                domain_names("domains"),
            ),
            (_window_note(study), "failed: counts as a failed check; open: was there when the window began"),
        ),
    ]


def false_positives_report(study: Study) -> list[Section]:
    """COMPLETED jobs that saw a failed check, per check, against the budget."""
    found = study.false_positives
    if not missing.has_events(study.history):
        nothing = found.per_check.clear()
        note = f"{missing.NOT_MEASURED}: no events of agents, so no job can have seen a failed check"
        return [Section("false_positives", "False-positive budget", nothing, (note,))]
    over = found.per_check.filter("over_budget")
    alarms = tuple(
        f"{check}: {jobs} of {found.completed} COMPLETED jobs saw it fail ({share:.2%}), budget below"
        f" {found.budget.share:.2%}"
        for check, jobs, share in over.select("check", "jobs", "share").iter_rows()
    )
    notes = (
        f"{found.completed:,} COMPLETED jobs; a failed check on one of a job's nodes while it ran; 90 % intervals",
        "a correlation, not proof of a false alarm: a job can survive a real fault",
    )
    return [Section("false_positives", "False-positive budget", found.per_check, notes, alarms)]


def _ended(study: Study) -> pl.DataFrame:
    """gpus, gpu_h of the runs that ended in the period."""
    return scan_started(study.history).filter(pl.col("end_at").is_not_null()).select("gpus", "gpu_h").collect()


def _failed_steps(study: Study) -> Section:
    """COMPLETED jobs of which steps ended badly: to Slurm a success, to their users perhaps not."""
    done = study.history.jobs.filter(pl.col("state") == "COMPLETED")
    known = done.filter(pl.col("failed_steps").is_not_null())
    hurt = known.filter(pl.col("failed_steps") > 0)
    table = hurt.group_by(size_class()).agg(pl.len().alias("jobs"), pl.col("failed_steps").sum())
    note = f"{hurt.height:,} of {known.height:,} COMPLETED jobs whose steps are known"
    if known.is_empty():
        note = f"{missing.NOT_MEASURED}: the input has neither steps nor DerivedExitCode"
    return Section("failed_steps", "COMPLETED jobs with steps that ended badly", size_order(table), (note,))


def _rows(ends: pl.DataFrame) -> pl.DataFrame:
    blamed = pl.col("blamed").list.join(",").alias("blamed_nodes")
    columns = ("job_id", "attempt", "state", "end_at", "gpus", "verdict", "category", "fault", "check", "node")
    return ends.select(*columns, blamed, domain_names("domains"), "causes", "possibly_user")


def _window_note(study: Study) -> str:
    s = study.settings.attribution
    return (
        f"a failed check on the job's own nodes from {s.before_min:g} min before its {s.anchor} to {s.after_min:g} min"
        f" after its end, both inclusive; severity {s.min_severity.name.lower()} and above"
    )


def _verdicts(study: Study) -> Section:
    """Shares of all ended jobs, and of all GPU time: a few large failed jobs cost more than their number suggests."""
    ended = _ended(study)
    all_jobs, all_gpu_h = ended.height, float(ended["gpu_h"].sum())
    counts = study.attributed.ends.group_by("verdict").agg(
        pl.len().alias("jobs"), pl.col("gpu_h").sum(), pl.col("possibly_user").sum()
    )
    table = with_share(counts.sort(["jobs", "verdict"], descending=[True, False]), "jobs", all_jobs).with_columns(
        (pl.col("gpu_h") / max(all_gpu_h, 1e-9)).alias("share_of_gpu_time")
    )
    infra = table.filter(pl.col("verdict").is_in((INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL)))
    notes = (
        _window_note(study),
        f"share (90 % interval) is of {all_jobs:,} ended jobs; GPU time of {all_gpu_h:,.0f} GPU hours",
        f"the fleet failed {int(infra['jobs'].sum()) / max(all_jobs, 1):.2%} of jobs, which used"
        f" {float(infra['gpu_h'].sum()) / max(all_gpu_h, 1e-9):.1%} of GPU time",
        "FAILED without a failed check is never among them",
        "possibly_user: a user's error explains the failure as well, so the attribution may be wrong",
    )
    return Section("verdicts", "How failed jobs are judged", table, notes)


def _by_size(study: Study) -> Section:
    ended = _ended(study)
    infra = study.attributed.infrastructure.group_by(size_class()).agg(
        pl.len().alias("infra_failures"), pl.col("gpu_h").sum().alias("infra_gpu_h")
    )
    table = ended.group_by(size_class()).agg(pl.len().alias("jobs"), pl.col("gpu_h").sum())
    merged = table.join(infra, on="gpus_class", how="left").with_columns(
        pl.col("infra_failures", "infra_gpu_h").fill_null(0)
    )
    table = size_order(merged).with_columns(
        (pl.col("jobs") / pl.col("jobs").sum()).alias("share_of_jobs"),
        (pl.col("gpu_h") / pl.col("gpu_h").sum()).fill_nan(0.0).alias("share_of_gpu_time"),
        (pl.col("infra_failures") / pl.col("jobs")).alias("infra_share_of_jobs"),
        (pl.col("infra_gpu_h") / pl.col("gpu_h")).fill_nan(0.0).alias("infra_share_of_gpu_time"),
    )
    return Section("failures_by_size", "Infrastructure failures by job size, by jobs and by GPU time", table)


def _categories(study: Study) -> Section:
    ends = study.attributed.ends.filter(pl.col("verdict").is_in((INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL)))
    counts = (
        ends.group_by(pl.col("category").fill_null("node lost, no evidence"), "domains")
        .agg(
            pl.len().alias("jobs"),
            pl.col("gpu_h").sum(),
            pl.col("lasts").first(),
            pl.col("shared").sum().alias("shared_by_nodes"),
        )
        .sort(["jobs", "category", "domains"], descending=[True, False, True])
    )
    table = with_share(counts.with_columns(domain_names("domains")), "jobs", ends.height)
    notes = (
        f"shares of {ends.height:,} jobs, 90 % intervals; domains: who can be behind it when every signal has ruled out"
        " what it can; lasts: transient, permanent until a part is changed, or either",
    )
    return Section("causes", "Primary causes, and who can be behind them", table, notes)


def _together(study: Study) -> list[Section]:
    found = study.attributed
    like = cooccurrence.like_priority_share(found)
    notes = (
        () if like is None else (f"{like:.1%} of attributed jobs had two or more checks fail at the highest severity",)
    )
    return [
        Section("cooccurrence", "Which causes come together", cooccurrence.matrix(found), notes),
        Section("combinations", "All causes of each job", cooccurrence.combinations(found)),
        Section(
            "marginal",
            "What each check adds",
            cooccurrence.marginal(found),
            ("only: attributed jobs that would have no evidence without this check",),
        ),
    ]


def _bursts(study: Study) -> Section:
    """Several nodes that end with NODE_FAIL at once and without evidence share the cause."""
    silent = study.attributed.ends.filter(pl.col("verdict") == UNATTRIBUTED_NODE_FAIL).sort("end_at")
    gap = (pl.col("end_at") - pl.col("end_at").shift(1)).dt.total_seconds() > _BURST_MIN * 60
    nodes = study.history.jobs.select("run", "nodes")
    table = (
        silent.with_columns(gap.fill_null(True).cum_sum().alias("burst"))
        .join(nodes, on="run")
        .group_by("burst")
        .agg(
            pl.col("end_at").min().alias("first_at"),
            pl.col("end_at").max().alias("last_at"),
            pl.len().alias("jobs"),
            pl.col("nodes").list.explode(empty_as_null=False).n_unique().alias("nodes_of_jobs"),
        )
        .filter((pl.col("jobs") >= _BURST_NODES) & (pl.col("nodes_of_jobs") >= _BURST_NODES))
        .drop("burst")
        .sort("first_at")
    )
    notes = (
        f"{_BURST_NODES} or more jobs, each within {_BURST_MIN:g} min of the last: a rack, a switch, a power feed?",
    )
    return Section("node_fail_bursts", "NODE_FAIL without evidence, many at once", table, notes)
