"""Stretches in which nodes were down: how long, how many at once, how often the same one. The sizing of spares uses it.

The table is node:String, start_day:Float64, end_day:Float64, in days from any origin; those of one node may overlap.
"""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from nodetriage.analysis.history.exposure import Window

BACK = ("repaired", "resumed")  # what returns a node to service


def of_records(records: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Outages within the window in days from its start: the union of all that keeps a node out, node by node.

    `records` are rows of tables.OUTAGES. A node is out from a `drained` until as many `repaired` or `resumed` followed
    as there were drains: of two drains that overlap, the first repair returns no node. A drain that repeats the cause
    of one that is open, with fewer repairs than drains to follow, is the same drain. Adds repaired:Boolean; an outage
    that is still open ends with the window.
    """
    day = (pl.col("at") - window.since).dt.total_microseconds() / 86_400e6
    moves = records.filter(pl.col("kind").is_in(("drained", *BACK)))
    moves = moves.select("node", day.alias("day"), "cause", (pl.col("kind") == "drained").alias("out"))
    # At one moment a drain comes before a repair; else a repair that was written down first would leave it open.
    ordered = moves.sort(["node", "day", "out"], descending=[False, False, True], maintain_order=True)
    rows = [
        (str(key[0]), start, min(end, window.days), end < window.days)
        for key, own in ordered.group_by("node", maintain_order=True)
        for start, end in _stretches(list(own.select("day", "cause", "out").iter_rows()))
        if start < window.days and end > 0
    ]
    schema = {"node": pl.String, "start_day": pl.Float64, "end_day": pl.Float64, "repaired": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


_Move = tuple[float, str, bool]  # day, cause, whether the node goes out


def _stretches(moves: list[_Move]) -> list[tuple[float, float]]:
    """When one node was out; infinite: it still is. More than one drain left open are repeats."""
    found, open_drains = _counted(moves, repeats=False)
    return found if open_drains < 2 else _counted(moves, repeats=True)[0]


def _counted(moves: list[_Move], *, repeats: bool) -> tuple[list[tuple[float, float]], int]:
    found: list[tuple[float, float]] = []
    causes: list[str] = []
    since = 0.0
    for day, cause, out in moves:
        if out:
            since = day if not causes else since
            if not (repeats and cause in causes):
                causes.append(cause)
        elif causes:
            causes.remove(cause if cause in causes else causes[0])
            if not causes:
                found.append((since, day))
    return ([*found, (since, math.inf)] if causes else found), len(causes)


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
