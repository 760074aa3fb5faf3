"""Lemons in published data: nodes, and GPUs, that failed again and again are on the list.

The trace of InfiniteHBD is part of the project. LANL's and Titan's data are not: their tests exist only where
NODETRIAGE_DATA names a folder with lanl_failures/ and titan_gpu_life/, each with the publisher's file in it.
"""

import csv
import io
import json
import lzma
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from stretches import most_within

from nodetriage.analysis import tables
from nodetriage.analysis.history import attribution, history
from nodetriage.analysis.lemons import detector, signals
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, TIME

NOW = datetime(2100, 1, 1, tzinfo=UTC)
OUTSIDE = os.environ.get("NODETRIAGE_DATA")


def outside(test: Callable[[], None]) -> Callable[[], None] | None:
    """The test where the data are, and none where they are not: nothing is skipped that could not be had."""
    return test if OUTSIDE else None


def flagged_ever(starts: pl.DataFrame, idle: int, settings: detector.Lemons | None = None) -> set[str]:
    """`starts`: node, at. `idle` nodes of the fleet had no fault at all."""
    rows = starts.select("node", "at", pl.lit("drained").alias("kind"), pl.lit("").alias("cause"))
    # The others are known by a ticket from before the period, which counts for nothing in it.
    first, last = starts["at"].min(), starts["at"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    before = first - timedelta(days=400)
    others = [{"node": f"idle{i}", "at": before, "kind": "ticket", "cause": ""} for i in range(idle)]
    table = pl.concat([rows, pl.DataFrame(others, schema=dict(OUTAGES), orient="row")])
    sound = tables.sound_outages(table, NOW).frame
    past = history.of(tables.empty(JOBS), tables.empty(EVENTS), NOW, first, last, sound)
    facts = signals.facts(past, attribution.attribute(past))
    return set(detector.rolling(facts, past.since, past.until, settings)["node"])


def repeaters(starts: pl.DataFrame, least: int) -> set[str]:
    """Those with at least so many starts within some 28 days."""
    days = starts.select("node", (pl.col("at").dt.epoch("us") / 86_400e6).alias("start_day"))
    return set(most_within(days, 28.0).filter(pl.col("most") >= least)["node"])


def test_the_eleven_nodes_of_infinitehbd_with_five_faults_in_28_days_are_flagged() -> None:
    with lzma.open(Path(__file__).parents[1] / "data" / "infinitehbd" / "fault_trace.json.xz") as file:
        trace = json.load(file)
    zero = datetime(2024, 3, 30, tzinfo=UTC)
    rows = [(e["node_id"], zero + timedelta(days=e["event_time"])) for e in trace if e["event_type"] == "fault_start"]
    starts = pl.DataFrame(rows, schema={"node": pl.String(), "at": TIME}, orient="row")
    flagged = flagged_ever(starts, 400 - starts["node"].n_unique())
    assert len(repeaters(starts, 5)) == 11
    assert repeaters(starts, 5) <= flagged
    assert flagged <= repeaters(starts, 3)


@outside
def test_node_0_of_lanls_system_20_is_flagged() -> None:
    path = Path(OUTSIDE or "", "lanl_failures", "LA-UR-05-7318-failure-data-1996-2005.csv.xz")
    with lzma.open(path) as file:
        rows = [r for r in csv.DictReader(io.StringIO(file.read().decode("latin-1"))) if r["System"] == "20"]
    starts = pl.DataFrame({"node": [r["nodenumz"] for r in rows], "at": [r["Prob Started"] for r in rows]})
    at = pl.col("at").str.to_datetime("%m/%d/%Y %H:%M", time_unit="us", strict=False).dt.replace_time_zone("UTC")
    assert "0" in flagged_ever(starts.with_columns(at).drop_nulls(), 0)


@outside
def test_the_fifteen_gpus_of_titan_with_ten_errors_in_28_days_are_flagged() -> None:
    with lzma.open(Path(OUTSIDE or "", "titan_gpu_life", "gc_full.csv.xz")) as file:
        lives = pl.read_csv(file.read(), infer_schema=False)
    at = pl.col("remove").str.to_datetime(time_unit="us", strict=False).dt.replace_time_zone("UTC").alias("at")
    events = lives.filter(pl.col("event").is_not_null() & (pl.col("event") != ""))
    starts = events.select(pl.col("SN").alias("node"), at).drop_nulls()
    healthy = lives["SN"].n_unique() - starts["node"].n_unique()
    assert len(repeaters(starts, 10)) == 15
    assert repeaters(starts, 10) <= flagged_ever(starts, healthy)
