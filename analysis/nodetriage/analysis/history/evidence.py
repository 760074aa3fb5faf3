"""Which faults a job's nodes had while the job's window was open: an exact interval join that stays small.

A fault that stays until it is cleared is an interval, one that happens is a point. Intervals of one node, check, fault
and severity are a stream; a window meets a stream at most once in the result, however many events the stream has.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from nodetriage.analysis.history import fault_table

_STREAM = ("node", "check", "fault", "xid", "severity")
_ROWS_AT_ONCE = 4_000_000

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Episodes:
    """When which fault was there. `rows` is sorted by stream and start; `streams` has one row a stream."""

    rows: pl.DataFrame  # stream, node_id, part, from_us, to_us
    streams: pl.DataFrame  # stream, node_id, node, check, fault, xid, severity and the taxonomy's columns


def episodes(events: pl.DataFrame, open_at_most: timedelta) -> Episodes:
    """Events as episodes. A fault that was never cleared ends after `open_at_most`."""
    known = fault_table.table_of(events)
    reported = events.filter(
        pl.col("kind").is_in(("raised", "changed", "repeated", "cleared")) & (pl.col("fault") != "")
    )
    reported = reported.join(known, on=["fault", "xid"], how="left", nulls_equal=True)
    component = ["node", "check", "component", "fault"]
    reported = reported.with_columns(pl.col("at").dt.epoch("us").alias("from_us")).sort(
        [*component, "from_us"], maintain_order=True
    )
    same = pl.all_horizontal(pl.col(c) == pl.col(c).shift(-1) for c in component).fill_null(False)
    longest = pl.col("from_us") + open_at_most // timedelta(microseconds=1)
    until = pl.when(same).then(pl.min_horizontal(pl.col("from_us").shift(-1), longest)).otherwise(longest)
    reported = reported.with_columns(pl.when("condition").then(until).otherwise("from_us").alias("to_us"))
    reported = reported.filter(pl.col("kind") != "cleared")
    streams = reported.unique(_STREAM, maintain_order=True).sort(_STREAM).with_row_index("stream")
    streams = streams.with_columns((pl.col("node").rank("dense") - 1).cast(pl.Int64).alias("node_id"))
    rows = reported.join(streams.select(*_STREAM, "stream", "node_id"), on=_STREAM, nulls_equal=True)
    streams = streams.drop("at", "kind", "component", "from_us", "to_us")
    return Episodes(
        rows.select("stream", "node_id", "component", "from_us", "to_us").sort("stream", "from_us"), streams
    )


def met(found: Episodes, windows: pl.DataFrame) -> pl.DataFrame:
    """The streams that each window meets.

    `windows`: run, node, lo, hi (Datetime; both ends belong to the window). Result: run, the columns of `streams`,
    `component` and `first_at` of the earliest episode that began in the window (or before it and still open), `events`
    that began in it, `open` (it was there when the window began).
    """
    nodes = found.streams.select("node", "node_id").unique("node")
    asked = windows.join(nodes, on="node", how="inner").select(
        "run", "node_id", pl.col("lo").dt.epoch("us"), pl.col("hi").dt.epoch("us")
    )
    by_node = _Index(found.rows["node_id"], found.rows)
    started, _, was_open = by_node.hits(asked["node_id"].to_numpy(), asked["lo"].to_numpy(), asked["hi"].to_numpy())
    asked = asked.filter(pl.Series((started > 0) | (was_open > 0), dtype=pl.Boolean))
    by_stream = _Index(found.rows["stream"], found.rows)
    of_node = found.streams.select("stream", "node_id")
    width = asked.join(of_node.group_by("node_id").len("streams"), on="node_id", maintain_order="left")["streams"]
    slices = (
        [asked]
        if width.is_empty()
        else asked.with_columns((width.cum_sum() // _ROWS_AT_ONCE).alias("slice")).partition_by(
            "slice", include_key=False
        )
    )
    parts = [_streams_met(by_stream, s.join(of_node, on="node_id"), found.rows) for s in slices]
    return pl.concat(parts).join(found.streams, on="stream").drop("stream", "node_id")


def _streams_met(index: "_Index", asked: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    lo = asked["lo"].to_numpy()
    started, first, was_open = index.hits(asked["stream"].to_numpy(), lo, asked["hi"].to_numpy())
    hit = (started > 0) | (was_open > 0)
    # Where no episode began in the window, the open one is the last that began before it.
    place = pl.Series(index.order[np.where(started > 0, first, first - 1)[hit]], dtype=pl.Int64)
    return asked.filter(pl.Series(hit, dtype=pl.Boolean)).select(
        "run",
        "stream",
        rows["component"].gather(place).alias("component"),
        pl.from_epoch(rows["from_us"].gather(place), time_unit="us").dt.replace_time_zone("UTC").alias("first_at"),
        pl.Series("events", started[hit]),
        pl.Series("open", was_open[hit] > 0),
    )


class _Index:
    """Episodes of many streams in one sorted array: a stream's number and the rank of a time make one key."""

    def __init__(self, streams: pl.Series, rows: pl.DataFrame) -> None:
        stream = streams.cast(pl.Int64).to_numpy()
        starts, ends = rows["from_us"].to_numpy(), rows["to_us"].to_numpy()
        self._times = np.unique(np.concatenate([starts, ends]))
        self._width = len(self._times) + 1
        start_keys = stream * self._width + np.searchsorted(self._times, starts)
        self.order = np.argsort(start_keys, kind="stable")
        self._starts = start_keys[self.order]
        self._ends = np.sort(stream * self._width + np.searchsorted(self._times, ends))

    def hits(self, stream: _Ints, lo: _Ints, hi: _Ints) -> tuple[_Ints, _Ints, _Ints]:
        """For each window: how many episodes began in it, the place of the first that did, how many were open at lo."""
        base = stream.astype(np.int64) * self._width
        low = base + np.searchsorted(self._times, lo, side="left")
        high = base + np.searchsorted(self._times, hi, side="right")
        offset = np.searchsorted(self._starts, base)
        first = np.searchsorted(self._starts, low)
        started = np.searchsorted(self._starts, high) - first
        ended = np.searchsorted(self._ends, low) - np.searchsorted(self._ends, base)
        return started, first, (first - offset) - ended
