"""Work that stopped runs lost, in GPU hours: their own (direct), and that of jobs they pushed out (second order)."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from nodetriage.analysis.history.attribution import Attributed
from nodetriage.analysis.history.cascades import Linked, lost_gpu_h
from nodetriage.analysis.history.exposure import seconds
from nodetriage.analysis.history.history import History, scan_started
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
        "user_failures": "work that FAILED, OUT_OF_MEMORY, TIMEOUT and DEADLINE threw away, at most the cap for each",
        "other_ends": "work that cancelled, requeued and other preempted runs threw away, at most the cap for each",
    }
)

_OWN_FAULT = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE")
_UNHURT = ("COMPLETED", "RESIZING")


def by_size(
    history: History, attributed: Attributed, found: Linked, capacity_gpu_h: float | None = None
) -> pl.DataFrame:
    """gpus_class, failures, direct_gpu_h, preempted, second_order_gpu_h, used_gpu_h, second_order_share, shares.

    The last row is all sizes together. The second order is the work of runs preempted for a job that had failed, by
    the size of the job that failed. share_of_gpu_time: of what all jobs used in the period; share_of_capacity: of
    `capacity_gpu_h`, all GPU hours that the cluster has in it (null where that is not known).
    """
    failed = attributed.infrastructure
    direct = failed.select("gpus", lost_gpu_h(found.settings.lost_min))
    roots = failed.group_by(pl.col("job_id").alias("root")).agg(pl.col("gpus").max())
    second = found.links.filter(pl.col("root").is_not_null()).select("root", "lost_gpu_h").join(roots, on="root")
    used = scan_started(history).select("gpus", "gpu_h").collect()
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
    all_used = float(total["used_gpu_h"].item())
    return rows.with_columns(
        pl.when(all_lost > 0).then(pl.col("second_order_gpu_h") / all_lost).alias("second_order_share"),
        _share(all_lost, all_used).alias("share_of_gpu_time"),
        _share(all_lost, capacity_gpu_h or 0.0).alias("share_of_capacity"),
    )


def _share(part: pl.Expr, of: float) -> pl.Expr:
    return part / of if of > 0 else pl.lit(None, dtype=pl.Float64)


def weeks(
    history: History, attributed: Attributed, found: Linked, costs: Observe | None = None, gpus_per_node: int = 8
) -> pl.DataFrame:
    """week (Monday), bucket, gpu_h, share: the GPU hours in use, divided among BUCKETS; each week adds up to 1.

    A run counts in every week for the hours that it ran in it. What an end threw away are the last hours before it.
    """
    costs = costs or Observe()
    lost_s = pl.min_horizontal(pl.col("run_s"), pl.lit(found.settings.lost_min * 60.0))
    rooted = found.links.filter(pl.col("root").is_not_null())
    runs = (
        scan_started(history)
        .select("run", "attempt", "state", "gpus", "start_at", "end_at", "from_at", "to_at", lost_s.alias("lost_s"))
        .collect()
        .join(attributed.infrastructure.select("run", pl.lit("rework").alias("by_fleet")), on="run", how="left")
        .join(rooted.select("run", pl.lit("second_order").alias("by_cascade")), on="run", how="left")
        .with_columns(pl.coalesce("by_fleet", "by_cascade", _own_end()).alias("lost_to"))
    )
    shares = _divided(_pieces(runs), costs, gpus_per_node)
    weekly = (
        shares.group_by("week")
        .agg(pl.col(list(BUCKETS)).sum())
        .sort("week")
        .unpivot(index="week", variable_name="bucket", value_name="gpu_h")
    )
    total = pl.col("gpu_h").sum().over("week")
    return weekly.with_columns(pl.when(total > 0).then(pl.col("gpu_h") / total).otherwise(0.0).alias("share"))


def _own_end() -> pl.Expr:
    """The bucket of an end that neither the fleet nor a cascade brought about; null: nothing is lost."""
    unhurt = pl.col("end_at").is_null() | pl.col("state").is_in(_UNHURT)
    own = pl.when(pl.col("state").is_in(_OWN_FAULT)).then(pl.lit("user_failures")).otherwise(pl.lit("other_ends"))
    return pl.when(~unhurt).then(own)


def _pieces(runs: pl.DataFrame) -> pl.DataFrame:
    """Each run once for each week that it ran in, `from_at` and `to_at` within that week."""
    first, last = pl.col("from_at").dt.truncate("1w"), pl.col("to_at").dt.truncate("1w")
    whole = runs.filter(first == last).with_columns(first.alias("monday"))
    parts = runs.filter(first != last).with_columns(pl.datetime_ranges(first, last, "1w").alias("monday"))
    split = parts.explode("monday", empty_as_null=True).with_columns(
        pl.max_horizontal("from_at", "monday").alias("from_at"),
        pl.min_horizontal("to_at", pl.col("monday").dt.offset_by("1w")).alias("to_at"),
    )
    return pl.concat([whole, split.select(whole.columns)]).with_columns(pl.col("monday").dt.date().alias("week"))


def _divided(pieces: pl.DataFrame, costs: Observe, gpus_per_node: int) -> pl.DataFrame:
    """Each piece's GPU hours over the buckets; what one takes is no longer there for the next."""
    gpus = pl.col("gpus").fill_null(0)
    lost = _overlap_h(pl.col("end_at") - pl.duration(microseconds=(pl.col("lost_s") * 1e6).cast(pl.Int64)), "end_at")
    again = pl.col("start_at") + pl.duration(microseconds=round(costs.restart_min * 60e6))
    restart = pl.when(pl.col("attempt") > 1).then(_overlap_h(pl.col("start_at"), again)).otherwise(0.0)
    stall = costs.checkpoint_write_min / (costs.checkpoint_interval_min + costs.checkpoint_write_min)
    rows = pieces.with_columns((seconds() / 3600 * gpus).alias("left"))
    taken = {
        name: pl.when(pl.col("lost_to") == name).then(lost).otherwise(0.0)
        for name in ("rework", "second_order", "user_failures", "other_ends")
    }
    for name, wanted in {**taken, "restart": restart}.items():
        rows = rows.with_columns(pl.min_horizontal((wanted * gpus).fill_null(0.0), "left").alias(name))
        rows = rows.with_columns((pl.col("left") - pl.col(name)).alias("left"))
    stalled = pl.when(gpus > gpus_per_node).then(pl.col("left") * stall).otherwise(0.0)
    return rows.with_columns(stalled.alias("checkpoint_stall")).with_columns(
        (pl.col("left") - pl.col("checkpoint_stall")).alias("useful")
    )


def _overlap_h(first: pl.Expr, last: pl.Expr | str) -> pl.Expr:
    """Hours that a piece shares with the stretch from `first` to `last`."""
    shared = pl.min_horizontal("to_at", last) - pl.max_horizontal("from_at", first)
    return shared.dt.total_microseconds().clip(lower_bound=0) / 3.6e9


def _per_class(rows: pl.DataFrame, *totals: pl.Expr) -> pl.DataFrame:
    return rows.group_by(size_class()).agg(*totals)
