"""Stretches in which nodes were down: how long, how many at once, how often the same one. The sizing of spares uses it.

The table is node:String, start_day:Float64, end_day:Float64, in days from any origin; those of one node may overlap.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nodetriage.analysis.history.exposure import Window


def of_records(records: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Outages within the window, from each `drained` of a node to its next `repaired`, in days from the window's start.

    `records` are rows of tables.OUTAGES. Adds repaired:Boolean; an outage that is still open ends with the window. A
    drain of a node that is out already is the same outage.
    """
    day = (pl.col("at") - window.since).dt.total_microseconds() / 86_400e6
    back = pl.when(pl.col("kind") == "repaired").then("day").backward_fill().over("node")
    stretches = (
        records.filter(pl.col("kind").is_in(("drained", "repaired")) & (pl.col("at") < window.until))
        .sort("node", "at")
        .with_columns(day=day, was_out=(pl.col("kind").shift(1).over("node") == "drained").fill_null(False))
        .with_columns(back=back)
        .filter((pl.col("kind") == "drained") & ~pl.col("was_out"))
        .select(
            "node",
            pl.col("day").alias("start_day"),
            pl.col("back").fill_null(window.days).alias("end_day"),
            pl.col("back").is_not_null().alias("repaired"),
        )
    )
    return stretches.filter(pl.col("end_day") > 0)


@dataclass(frozen=True, slots=True)
class Downtime:
    """Lengths of outages in days; all NaN where there was none."""

    outages: int
    mean_days: float
    median_days: float
    longest_days: float


def downtime(outages: pl.DataFrame) -> Downtime:
    """How long outages last; the mean is what the sizing of spares needs, and is often far above the median."""
    if not outages.height:
        return Downtime(0, float("nan"), float("nan"), float("nan"))
    spans = (outages["end_day"] - outages["start_day"]).to_numpy()
    return Downtime(outages.height, float(spans.mean()), float(np.median(spans)), float(spans.max()))


def mean_open(outages: pl.DataFrame, since_day: float, until_day: float) -> float:
    """Outages open at once, averaged over the time from `since_day` to `until_day`."""
    inside = _clipped(outages, since_day, until_day)
    return float((inside["end_day"] - inside["start_day"]).sum()) / (until_day - since_day)


def most_open(outages: pl.DataFrame) -> int:
    """The most outages open at one moment; one that ends as another begins is not counted with it."""
    times = np.concatenate([outages["start_day"].to_numpy(), outages["end_day"].to_numpy()])
    steps = np.concatenate([np.ones(outages.height), -np.ones(outages.height)])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max(initial=0))


def availability(outages: pl.DataFrame, nodes: int, since_day: float, until_day: float) -> float:
    """Share of node time in which no outage of the node was open; overlapping ones count once."""
    inside = _clipped(outages, since_day, until_day).sort("node", "start_day")
    # A stretch adds what lies beyond the latest end so far of the same node.
    seen = pl.col("end_day").cum_max().shift(1).over("node").fill_null(since_day)
    fresh = pl.col("end_day") - pl.max_horizontal("start_day", seen)
    down = inside.select(fresh.clip(lower_bound=0).sum()).item()
    return 1 - float(down) / (nodes * (until_day - since_day))


def _clipped(outages: pl.DataFrame, since_day: float, until_day: float) -> pl.DataFrame:
    inside = outages.filter((pl.col("end_day") > since_day) & (pl.col("start_day") < until_day))
    return inside.with_columns(
        start_day=pl.col("start_day").clip(lower_bound=since_day), end_day=pl.col("end_day").clip(upper_bound=until_day)
    )
