"""The join of windows with what nodes told, against a plain reading of the same rule."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.analysis.history import evidence
from nodetriage.analysis.tables import EVENTS, TIME

ZERO = datetime(2025, 1, 1, tzinfo=UTC)
NODES = ("n1", "n2")
CONDITION, MOMENT = "ib_link_down", "gpu_off_bus"  # latching = "no" and "boot" in faults.toml
LONGEST_MIN = 60

Row = tuple[str, int, str, str, str]  # node, minute, kind, fault, part


def at(minute: int) -> datetime:
    return ZERO + timedelta(minutes=minute)


def table(rows: list[Row]) -> pl.DataFrame:
    filled: list[dict[str, Any]] = []
    for node, minute, kind, fault, component in rows:
        row = {
            "node": node,
            "at": at(minute),
            "kind": kind,
            "check": "c",
            "component": component,
            "fault": fault,
            "severity": 4,
        }
        filled.append({**dict.fromkeys(EVENTS), **row})
    return pl.DataFrame(filled, schema=dict(EVENTS), orient="row")


def windows(rows: list[tuple[str, int, int]]) -> pl.DataFrame:
    schema = {"run": pl.UInt32(), "node": pl.String(), "lo": TIME, "hi": TIME}
    data = [(i, node, at(lo), at(hi)) for i, (node, lo, hi) in enumerate(rows)]
    return pl.DataFrame(data, schema=schema, orient="row")


def plainly(rows: list[Row], node: str, lo: int, hi: int) -> dict[str, tuple[int, bool]]:
    """fault -> (events that began in the window, whether one was open when it began); only what the window meets."""
    ordered = sorted(rows, key=lambda r: r[1])
    found: dict[str, tuple[int, bool]] = {}
    for i, (its_node, minute, kind, fault, component) in enumerate(ordered):
        if its_node != node or kind == "cleared":
            continue
        later = [r[1] for r in ordered[i + 1 :] if (r[0], r[3], r[4]) == (node, fault, component)]
        end = min([minute + LONGEST_MIN, *later[:1]]) if fault == CONDITION else minute
        began, was_open = lo <= minute <= hi, minute < lo <= end
        if began or was_open:
            count, before = found.get(fault, (0, False))
            found[fault] = (count + began, before or was_open)
    return found


rows_of_events = st.lists(
    st.tuples(
        st.sampled_from(NODES),
        st.integers(0, 300),
        st.sampled_from(["raised", "changed", "repeated", "cleared"]),
        st.sampled_from([CONDITION, MOMENT]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=25,
    unique_by=lambda r: (r[0], r[1], r[3], r[4]),
)
rows_of_windows = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(0, 300), st.integers(0, 90)).map(lambda w: (w[0], w[1], w[1] + w[2])),
    max_size=8,
)


@settings(max_examples=200)
@given(rows_of_events, rows_of_windows)
def test_a_window_meets_what_a_plain_reading_says(rows: list[Row], asked: list[tuple[str, int, int]]) -> None:
    found = evidence.met(evidence.episodes(table(rows), timedelta(minutes=LONGEST_MIN)), windows(asked))
    for run, (node, lo, hi) in enumerate(asked):
        own = found.filter(pl.col("run") == run)
        have = {r["fault"]: (r["events"], r["open"]) for r in own.iter_rows(named=True)}
        assert have == plainly(rows, node, lo, hi)


def test_both_ends_of_a_window_belong_to_it() -> None:
    rows: list[Row] = [("n1", m, "raised", MOMENT, "a") for m in (9, 10, 20, 21)]
    found = evidence.met(evidence.episodes(table(rows), timedelta(0)), windows([("n1", 10, 20)]))
    assert found["events"].to_list() == [2]
    assert found["first_at"].to_list() == [at(10)]


def test_a_node_without_events_and_a_table_without_rows_give_nothing() -> None:
    some = table([("n1", 5, "raised", MOMENT, "a")])
    for events, asked in ((some, [("n9", 0, 10)]), (some, []), (table([]), [("n1", 0, 10)])):
        assert evidence.met(evidence.episodes(events, timedelta(0)), windows(asked)).height == 0


def test_half_a_million_events_on_one_node_stay_one_row_for_each_window() -> None:
    one = table([("n1", 0, "raised", CONDITION, "a")])
    seconds = pl.DataFrame({"second": range(500_000)})
    many = one.join(seconds, how="cross").with_columns(at=pl.col("at") + pl.duration(seconds="second")).drop("second")
    asked = windows([("n1", m, m + 60) for m in range(0, 5000, 5)])
    began = time.monotonic()
    found = evidence.met(evidence.episodes(many, timedelta(hours=1)), asked)
    assert found.height == asked.height
    assert found["events"].max() == 3601
    assert time.monotonic() - began < 30
