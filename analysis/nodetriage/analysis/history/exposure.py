"""How long what ran: run time and node time of jobs within a window, in total and day by day."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from nodetriage.analysis.models.burst import Floats
from nodetriage.analysis.models.mttf import GPUS_PER_NODE
from nodetriage.analysis.tables import RUNNING_STATES, TIME

DAY = timedelta(days=1)
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of UTC time, `since` included and `until` excluded.

    `known_until`: the end of what the source of jobs knows, where that is earlier; a run without an end lasts to it.
    """

    since: datetime
    until: datetime
    known_until: datetime | None = None

    def __post_init__(self) -> None:
        if self.since.tzinfo is None or self.until.tzinfo is None:
            raise ValueError("window: expected times with a zone")
        if self.until < self.since:
            raise ValueError(
                f"window: expected an end after {self.since:%Y-%m-%d %H:%M}, got {self.until:%Y-%m-%d %H:%M}"
            )

    @property
    def days(self) -> float:
        """Its length in days."""
        return (self.until - self.since) / DAY

    def holds(self, column: str) -> pl.Expr:
        """Whether a time lies in the window."""
        return (pl.col(column) >= self.since) & (pl.col(column) < self.until)

    @property
    def live_until(self) -> datetime:
        """The end of runs that have none."""
        return self.until if self.known_until is None else min(self.until, self.known_until)


def whole(jobs: pl.DataFrame, now: datetime) -> Window:
    """From the first start to the last end, or to `now` where jobs are running; empty where no job started."""
    first = jobs["start_at"].min()
    if not isinstance(first, datetime):
        return Window(now, now)
    running = jobs.select((pl.col("start_at").is_not_null() & pl.col("end_at").is_null()).any()).item()
    last = jobs["end_at"].max()
    until = now if running or not isinstance(last, datetime) else last + timedelta(microseconds=1)
    return Window(first, max(until, first))


def ran(jobs: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """The runs that touch the window, with `from_at` and `to_at`: their stretch within it. All exposure counts these.

    A run without an end lasts to the end of what is known, if its state is one of a job that runs; a final state
    without an end, a run that never started, and a row that ends before it starts have no stretch.
    """
    since, until = pl.lit(window.since, dtype=TIME), pl.lit(window.until, dtype=TIME)
    live = pl.lit(window.live_until, dtype=TIME)
    end = pl.coalesce("end_at", pl.when(pl.col("state").is_in(RUNNING_STATES)).then(live))
    return (
        jobs.with_columns(end.alias("to_at"))
        .filter((pl.col("start_at") < until) & (pl.col("to_at") >= since) & (pl.col("to_at") >= pl.col("start_at")))
        .with_columns(
            pl.max_horizontal("start_at", since).alias("from_at"), pl.min_horizontal("to_at", until).alias("to_at")
        )
    )


def seconds() -> pl.Expr:
    """The length of a run's stretch within the window."""
    return (pl.col("to_at") - pl.col("from_at")).dt.total_microseconds() / 1e6


def runs(jobs: pl.DataFrame, window: Window, failed: pl.Expr) -> pl.DataFrame:
    """One row per run that touches the window: gpus, node_count, run_h (inside the window), failed (ended in it).

    Where the node count is not known it is that of the node list, or follows from the GPUs.
    """
    return (
        ran(jobs.lazy(), window)
        .select(
            pl.col("gpus").fill_null(0),
            node_count().alias("node_count"),
            (seconds() / 3600).alias("run_h"),
            (failed.fill_null(False) & window.holds("end_at").fill_null(False)).alias("failed"),
        )
        .collect()
    )


def node_count() -> pl.Expr:
    """Nodes of a job: as counted, else as listed, else as its GPUs need, else one."""
    counted = pl.when(pl.col("node_count") > 0).then("node_count")
    listed = pl.when(pl.col("nodes").list.len() > 0).then(pl.col("nodes").list.len().cast(pl.Int32))
    needed = pl.when(pl.col("gpus") > 0).then(((pl.col("gpus") - 1) // GPUS_PER_NODE + 1).cast(pl.Int32))
    return pl.coalesce(counted, listed, needed, pl.lit(1, dtype=pl.Int32))


def daily_node_days(jobs: pl.DataFrame, window: Window) -> Floats:
    """Node-days in use on each day of the window, the first beginning at its start; the last day may be cut short."""
    edges = day_edges_us(window)
    rows = (
        ran(jobs.lazy(), window)
        .select(
            pl.col("from_at").dt.epoch("us").alias("start"),
            pl.col("to_at").dt.epoch("us").alias("end"),
            node_count().alias("nodes"),
        )
        .filter(pl.col("end") > pl.col("start"))
        .collect()
    )
    nodes = rows["nodes"].to_numpy().astype(np.float64)
    used = _used_before(rows["start"].to_numpy(), nodes, edges) - _used_before(rows["end"].to_numpy(), nodes, edges)
    return np.asarray(np.diff(used) / DAY_US, dtype=np.float64)


def day_edges_us(window: Window) -> Floats:
    """Where the days of the window begin and end, in microseconds since 1970."""
    first, last = _us(window.since), _us(window.until)
    return np.append(np.arange(first, last, DAY_US), last).astype(np.float64)


def _used_before(at: "np.ndarray[tuple[int], np.dtype[np.int64]]", nodes: Floats, edges: Floats) -> Floats:
    """For each edge: the node time up to it, if every run continued without end from `at`.

    It is a sum of ramps, so two cumulative sums over the edges do, however many runs there are.
    """
    place = np.searchsorted(edges, at, side="left")
    ramps = np.cumsum(np.bincount(place, weights=nodes, minlength=edges.size + 1)[: edges.size])
    offset = (at - edges[0]) * nodes
    offsets = np.cumsum(np.bincount(place, weights=offset, minlength=edges.size + 1)[: edges.size])
    return np.asarray(ramps * (edges - edges[0]) - offsets, dtype=np.float64)


def _us(at: datetime) -> int:
    return (at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
