"""Rates by cause, over the whole window and rolling over 30 days, with the days on which checks came or changed."""

from datetime import timedelta

import numpy as np
import polars as pl

from nodetriage.analysis.history.exposure import DAY_US, Window, daily_node_days, runs
from nodetriage.analysis.history.rates import LARGE_GPUS, PER_1000
from nodetriage.analysis.models import poisson
from nodetriage.analysis.models.mttf import GPUS_PER_NODE

ROLLING_DAYS = 30


def by_category(
    jobs: pl.DataFrame, window: Window, failed: pl.Expr, category: pl.Expr, gpus_per_node: int = GPUS_PER_NODE
) -> pl.DataFrame:
    """Failures of all jobs by cause in three units, most frequent first.

    category:String, failures:Int64, per_gpu_hour, per_1000_node_days, per_job and the 90 % bounds low_ and
    high_per_1000_node_days:Float64. A node-day is 24 hours of `gpus_per_node` GPUs in use, so that jobs that share a
    node count for their part of it; where no GPU is known it is that of the nodes of each job.
    """
    counted = runs(jobs, window, failed)
    gpu_hours = float((counted["run_h"] * counted["gpus"]).sum())
    node_days = gpu_hours / 24 / gpus_per_node or float((counted["run_h"] * counted["node_count"]).sum()) / 24
    causes = (
        _failures(jobs, window, failed, category)
        .group_by("category")
        .agg(pl.len().cast(pl.Int64).alias("failures"))
        .sort("failures", "category", descending=[True, False])
    )
    bounds = [poisson.rate(c, n, node_days / 1000, PER_1000) for c, n in causes.iter_rows()]
    return causes.with_columns(
        per_gpu_hour=pl.col("failures") / gpu_hours,
        per_1000_node_days=pl.col("failures") / (node_days / 1000),
        per_job=pl.col("failures") / max(counted.height, 1),
        low_per_1000_node_days=pl.Series([b.low for b in bounds], dtype=pl.Float64),
        high_per_1000_node_days=pl.Series([b.high for b in bounds], dtype=pl.Float64),
    )


def rolling(
    jobs: pl.DataFrame,
    window: Window,
    failed: pl.Expr,
    category: pl.Expr,
    *,
    days: int = ROLLING_DAYS,
    larger_than_gpus: int = LARGE_GPUS,
) -> pl.DataFrame:
    """Failures over node-days of the `days` days up to each day, by cause; only full windows, in daily steps.

    day:Date (the last of the window), category:String, failures:Int64, node_days:Float64, per_1000_node_days:Float64
    (null where nothing ran). Every cause has a row for every day, so that the rows of a day stack to the total.
    """
    large = jobs.filter(pl.col("gpus") > larger_than_gpus)
    exposure = daily_node_days(large, window)
    causes = _failures(large, window, failed, category)
    labels = causes["category"].unique().sort().to_list()
    full = exposure.size - days + 1
    if full < 1 or not labels:
        return _empty_rolling()
    place = ((causes["end_at"] - window.since).dt.total_microseconds() // DAY_US).to_numpy()
    node_days = _rolling_sum(exposure, days)
    last_days = [(window.since + timedelta(days=days - 1 + i)).date() for i in range(full)]
    parts = []
    for label in labels:
        here = place[(causes["category"] == label).to_numpy()]
        counts = _rolling_sum(np.bincount(here, minlength=exposure.size).astype(np.float64), days)
        parts.append(pl.DataFrame({"day": last_days, "category": label, "failures": counts, "node_days": node_days}))
    rate = pl.when(pl.col("node_days") > 0).then(pl.col("failures") / pl.col("node_days") * 1000)
    return pl.concat(parts).with_columns(pl.col("failures").cast(pl.Int64), per_1000_node_days=rate)


def check_annotations(events: pl.DataFrame, window: Window, settled_days: int = 7) -> pl.DataFrame:
    """The days on which a check or a fault code first reported: a step in the rate there may be no new fault.

    day:Date, text:String. The first `settled_days` of the window are skipped, where all is new.
    """
    named = events.filter((pl.col("check") != "") & pl.col("at").is_not_null())
    firsts = [
        named.group_by(column)
        .agg(pl.col("at").min())
        .select(pl.col("at"), (pl.lit(f"{what} ") + pl.col(column) + " first seen").alias("text"))
        for column, what in (("check", "check"), ("fault", "fault"))
    ]
    settled = window.since + timedelta(days=settled_days)
    late = pl.concat(firsts).filter((pl.col("at") >= settled) & (pl.col("at") < window.until))
    return late.sort("at", "text").select(pl.col("at").dt.date().alias("day"), "text")


def _failures(jobs: pl.DataFrame, window: Window, failed: pl.Expr, category: pl.Expr) -> pl.DataFrame:
    ended = failed.fill_null(False) & window.holds("end_at").fill_null(False) & pl.col("start_at").is_not_null()
    named = category.cast(pl.String).fill_null("unattributed").alias("category")
    return jobs.lazy().filter(ended).select("end_at", named).collect()


def _rolling_sum(
    values: "np.ndarray[tuple[int], np.dtype[np.float64]]", width: int
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[width:] - total[:-width], dtype=np.float64)


def _empty_rolling() -> pl.DataFrame:
    return pl.DataFrame(
        schema={
            "day": pl.Date,
            "category": pl.String,
            "failures": pl.Int64,
            "node_days": pl.Float64,
            "per_1000_node_days": pl.Float64,
        }
    )
