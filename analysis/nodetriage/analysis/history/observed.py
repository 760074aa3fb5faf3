"""Observed effective training time ratio (ETTR) of logical runs: all attempts of one job id, stitched together.

Productive time cannot be seen from the scheduler. It is what remains of the scheduled time when each start has paid
its restart, each interruption half an interval of rework, and the rest its checkpoint writes (F21 of docs/models.md):
R = (S - starts u0 - n dt/2) / (1 + w/dt). Every end that is not COMPLETED counts as an interruption, so the ratio is
a lower bound. One run says little: its spread is 1 to 3 points even if the model is exact.
"""

from dataclasses import dataclass
from typing import Literal

import polars as pl

from nodetriage.analysis.history.history import History, started
from nodetriage.analysis.models import ettr
from nodetriage.analysis.models.figure import OutOfDomain
from nodetriage.analysis.models.interruptions import Run

# A job that is resized ends one record of the scheduler's and begins the next; nothing stopped it.
_NOT_INTERRUPTED = ("COMPLETED", "RUNNING", "SUSPENDED", "COMPLETING", "RESIZING")


@dataclass(frozen=True, slots=True)
class Observe:
    """Which runs count, and what a start and a checkpoint cost. Times as named."""

    least_training_h: float = 48.0
    qos: str | None = None  # the top priority's name; None takes all, and a note says so
    # What makes attempts one run: the id that Slurm keeps when it requeues, or what users submit anew under one name.
    one_run: Literal["job_id", "user_and_name"] = "job_id"
    restart_min: float = 5.0
    checkpoint_write_min: float = 5.0
    checkpoint_interval_min: float = 60.0

    def __post_init__(self) -> None:
        if self.checkpoint_interval_min <= 0:
            raise ValueError(f"checkpoint_interval_min: expected above 0, got {self.checkpoint_interval_min}")
        if min(self.least_training_h, self.restart_min, self.checkpoint_write_min) < 0:
            raise ValueError("least_training_h, restart_min, checkpoint_write_min: expected 0 or more")


def logical_runs(history: History, settings: Observe | None = None) -> pl.DataFrame:
    """One row for each run (see `one_run`) whose attempts trained long enough:

    job_id, qos, gpus, node_count, attempts, interruptions, scheduled_h, queue_h, wall_h, productive_h, ettr.
    Times are those within the period; a restart and a wait are paid by each attempt that began in it. Queue time is
    from being submitted (or becoming eligible, or the last attempt's end) to the start.
    """
    settings = settings or Observe()
    attempts = _attempts(history, settings)
    if settings.qos is not None:
        attempts = attempts.filter(pl.col("qos") == settings.qos)
    totals = attempts.group_by("job_id", maintain_order=True).agg(
        pl.col("qos").last(),
        pl.col("gpus").max(),
        pl.col("node_count").max(),
        pl.len().alias("attempts"),
        (~pl.col("state").is_in(_NOT_INTERRUPTED)).sum().alias("interruptions"),
        pl.col("began").sum().alias("starts"),
        (pl.col("period_s").sum() / 3600).alias("scheduled_h"),
        (pl.col("queue_s").sum() / 3600).alias("queue_h"),
    )
    lost_min = pl.col("starts") * settings.restart_min + (
        pl.col("interruptions") * settings.checkpoint_interval_min / 2
    )
    stall = 1 + settings.checkpoint_write_min / settings.checkpoint_interval_min
    productive = ((pl.col("scheduled_h") - lost_min / 60) / stall).clip(lower_bound=0)
    return (
        totals.filter(pl.col("scheduled_h") >= settings.least_training_h)
        .with_columns((pl.col("scheduled_h") + pl.col("queue_h")).alias("wall_h"), productive.alias("productive_h"))
        .with_columns((pl.col("productive_h") / pl.col("wall_h")).alias("ettr"))
        .drop("starts")
        .sort(["gpus", "scheduled_h", "job_id"], descending=[True, True, False])
    )


def with_prediction(
    runs: pl.DataFrame, rf_per_1000_node_days: float | None, settings: Observe | None = None
) -> pl.DataFrame:
    """`runs` with `ettr_model`: the exact form with the run's own queue time.

    Null where the model does not hold, and where no rate was measured (None).
    """
    settings = settings or Observe()
    predicted = [_predicted(row, rf_per_1000_node_days, settings) for row in runs.iter_rows(named=True)]
    return runs.with_columns(pl.Series("ettr_model", predicted, dtype=pl.Float64))


def by_size(runs: pl.DataFrame) -> pl.DataFrame:
    """gpus, runs, interruptions, mean ettr with its range, queue per start (min); with ettr_model where it is there."""
    model = [pl.col("ettr_model").mean()] if "ettr_model" in runs.columns else []
    return (
        runs.group_by("gpus")
        .agg(
            pl.len().alias("runs"),
            pl.col("interruptions").sum(),
            pl.col("ettr").mean(),
            pl.col("ettr").quantile(0.05, "nearest").alias("ettr_p05"),
            pl.col("ettr").quantile(0.95, "nearest").alias("ettr_p95"),
            (pl.col("queue_h").sum() * 60 / pl.col("attempts").sum()).alias("queue_min_per_start"),
            *model,
        )
        .sort("gpus")
    )


def _attempts(history: History, settings: Observe) -> pl.DataFrame:
    """The started runs of ids that were requeued or ran long, with the time each waited."""
    job = pl.col("job_id")
    if settings.one_run == "user_and_name":
        # Without both, the id stands for the run.
        job = pl.concat_str("user", "name", separator="/").fill_null(job).alias("job_id")
    columns = (job, "attempt", "qos", "state", "gpus", "node_count", "submit_at", "eligible_at")
    began = pl.col("start_at") >= history.since
    jobs = started(history).select(*columns, "start_at", "end_at", "period_s", began.alias("began"))
    # An id that ran for less than an hour in all is no training run; this removes most rows of a long history.
    busy = jobs.group_by("job_id").agg(pl.col("period_s").sum().alias("all_s")).filter(pl.col("all_s") >= 3600)
    jobs = jobs.join(busy, on="job_id", how="semi").sort("job_id", "start_at")
    ready = pl.max_horizontal("submit_at", "eligible_at")
    before = pl.col("end_at").shift(1).over("job_id")
    since = pl.max_horizontal(ready, before).fill_null(pl.col("start_at"))
    waited = ((pl.col("start_at") - since).dt.total_microseconds() / 1e6).clip(lower_bound=0)
    return jobs.with_columns(pl.when("began").then(waited).otherwise(0.0).alias("queue_s"))


def _predicted(row: dict[str, float], rf_per_1000_node_days: float | None, settings: Observe) -> float | None:
    if rf_per_1000_node_days is None or not row["node_count"] or not row["productive_h"]:
        return None
    try:
        run = Run(
            nodes=row["node_count"],
            rf_per_1000_node_days=rf_per_1000_node_days,
            restart_min=settings.restart_min,
            checkpoint_write_min=settings.checkpoint_write_min,
            checkpoint_interval_min=settings.checkpoint_interval_min,
            queue_min=row["queue_h"] * 60 / row["attempts"],
            productive_min=row["productive_h"] * 60,
        )
        return ettr.exact(run).value
    except (OutOfDomain, OverflowError):
        return None
