"""Work that stopped runs lost, in GPU hours: their own (direct), and that of jobs they pushed out (second order)."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from nodetriage.analysis.history.attribution import Attributed
from nodetriage.analysis.history.cascades import Linked, lost_gpu_h
from nodetriage.analysis.history.history import History, started
from nodetriage.analysis.history.observed import Observe
from nodetriage.analysis.history.sizes import size_class, size_order

# What a week's GPU hours went to, in drawing order. `model` marks the computed parts.
BUCKETS: Mapping[str, str] = MappingProxyType(
    {
        "useful": "what remains",
        "checkpoint_stall": "model: write time over interval, of jobs above one node",
        "rework": "work that failures threw away, at most the cap for each",
        "second_order": "work of jobs pushed out by requeued ones",
        "restart": "model: one restart for each later attempt",
        "user_failures": "runs that ended FAILED, OUT_OF_MEMORY or TIMEOUT without a fault of the fleet",
        "straggler": "not measured by this history",
        "planned": "not measured by this history",
    }
)

_OWN_FAULT = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE")


def by_size(history: History, attributed: Attributed, found: Linked) -> pl.DataFrame:
    """gpus_class, failures, direct_gpu_h, preempted, second_order_gpu_h, second_order_share, share_of_gpu_time.

    The last row is all sizes together. `second_order` counts preemptions that go back to a failure.
    """
    direct = attributed.infrastructure.select("gpus", lost_gpu_h(found.settings.lost_min))
    second = found.links.filter(pl.col("root").is_not_null()).select("gpus", "lost_gpu_h")
    used = started(history.jobs, history.until).select("gpus", "gpu_h")
    tables = [
        _per_class(direct, pl.len().alias("failures"), pl.col("lost_gpu_h").sum().alias("direct_gpu_h")),
        _per_class(second, pl.len().alias("preempted"), pl.col("lost_gpu_h").sum().alias("second_order_gpu_h")),
        _per_class(used, pl.col("gpu_h").sum().alias("used_gpu_h")),
    ]
    merged = tables[2].join(tables[0], on="gpus_class", how="left").join(tables[1], on="gpus_class", how="left")
    merged = size_order(merged.fill_null(0))
    total = merged.sum().with_columns(pl.lit("all").alias("gpus_class"))
    rows = pl.concat([merged, total.select(merged.columns)])
    all_lost = pl.col("direct_gpu_h") + pl.col("second_order_gpu_h")
    return rows.with_columns(
        pl.when(all_lost > 0).then(pl.col("second_order_gpu_h") / all_lost).alias("second_order_share"),
        pl.when(pl.col("used_gpu_h") > 0).then(all_lost / pl.col("used_gpu_h")).alias("share_of_gpu_time"),
    )


def weeks(
    history: History, attributed: Attributed, found: Linked, costs: Observe | None = None, gpus_per_node: int = 8
) -> pl.DataFrame:
    """week (Monday), bucket, gpu_h, share: the GPU hours in use, divided among BUCKETS; each week adds up to 1.

    A run counts in the week in which it ended, whole.
    """
    costs = costs or Observe()
    failed = attributed.infrastructure.select("run", lost_gpu_h(found.settings.lost_min).alias("rework"))
    pushed = found.links.filter(pl.col("root").is_not_null()).select("run", pl.col("lost_gpu_h").alias("second_order"))
    runs = (
        started(history.jobs, history.until)
        .select("run", "attempt", "state", "gpus", "gpu_h", pl.col("end_at").fill_null(history.until))
        .join(failed, on="run", how="left")
        .join(pushed, on="run", how="left")
        .with_columns(pl.col("rework", "second_order").fill_null(0.0))
    )
    shares = _divided(runs, costs, gpus_per_node)
    weekly = (
        shares.group_by(pl.col("end_at").dt.truncate("1w").dt.date().alias("week"))
        .agg(pl.col(list(BUCKETS)).sum())
        .sort("week")
        .unpivot(index="week", variable_name="bucket", value_name="gpu_h")
    )
    total = pl.col("gpu_h").sum().over("week")
    return weekly.with_columns(pl.when(total > 0).then(pl.col("gpu_h") / total).otherwise(0.0).alias("share"))


def _divided(runs: pl.DataFrame, costs: Observe, gpus_per_node: int) -> pl.DataFrame:
    """Each run's GPU hours over the buckets; what one takes is no longer there for the next."""
    gpus = pl.col("gpus").fill_null(0)
    own = pl.col("state").is_in(_OWN_FAULT) & (pl.col("rework") == 0)
    restart = pl.when(pl.col("attempt") > 1).then(gpus * (costs.restart_min / 60)).otherwise(0.0)
    stall = costs.checkpoint_write_min / (costs.checkpoint_interval_min + costs.checkpoint_write_min)
    rows = runs.with_columns(pl.when(own).then("gpu_h").otherwise(0.0).alias("user_failures"))
    left = pl.col("gpu_h")
    taken = {
        "rework": pl.col("rework"),
        "second_order": pl.col("second_order"),
        "restart": restart,
    }
    rows = rows.with_columns((left - pl.col("user_failures")).alias("left"))
    for name, wanted in taken.items():
        rows = rows.with_columns(pl.min_horizontal(wanted, "left").alias(name))
        rows = rows.with_columns((pl.col("left") - pl.col(name)).alias("left"))
    stalled = pl.when(gpus > gpus_per_node).then(pl.col("left") * stall).otherwise(0.0)
    return rows.with_columns(stalled.alias("checkpoint_stall")).with_columns(
        (pl.col("left") - pl.col("checkpoint_stall")).alias("useful"),
        pl.lit(0.0).alias("straggler"),
        pl.lit(0.0).alias("planned"),
    )


def _per_class(rows: pl.DataFrame, *totals: pl.Expr) -> pl.DataFrame:
    return rows.group_by(size_class()).agg(*totals)
