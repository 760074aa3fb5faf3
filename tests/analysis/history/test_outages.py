"""Nodes out of service: stretches from records, how many at once, and the spares that a report asks for."""

import json
import lzma
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stretches import most_within

from nodetriage.analysis import simulate
from nodetriage.analysis.history import history, outages
from nodetriage.analysis.history.exposure import Window
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.reports.downtime import downtime_sections
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, empty

BEGIN = datetime(2025, 3, 1, tzinfo=UTC)
TRACE = Path(__file__).parents[1] / "data" / "infinitehbd" / "fault_trace.json.xz"
MONTH = Window(BEGIN, BEGIN + timedelta(days=30))

stretches = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 9)), max_size=12)


def table(rows: list[tuple[str, int, int]]) -> pl.DataFrame:
    """(node, start, length) in days."""
    schema = {"node": pl.String, "start_day": pl.Float64, "end_day": pl.Float64}
    return pl.DataFrame([(n, float(s), float(s + d)) for n, s, d in rows], schema=schema, orient="row")


def records(*rows: tuple[str, float, str]) -> pl.DataFrame:
    """(node, day, kind)."""
    made = [{"node": n, "at": BEGIN + timedelta(days=d), "kind": k, "cause": ""} for n, d, k in rows]
    return pl.DataFrame(made, schema=dict(OUTAGES))


@given(stretches)
def test_the_most_at_once_is_what_counting_day_by_day_finds(rows: list[tuple[str, int, int]]) -> None:
    days = [sum(start <= day + 0.5 < start + length for _, start, length in rows) for day in range(40)]
    assert outages.most_open(table(rows)) == max(days)


@given(stretches)
def test_availability_counts_a_node_that_is_out_twice_once(rows: list[tuple[str, int, int]]) -> None:
    out = {(node, day) for node, start, length in rows for day in range(start, start + length) if 2 <= day < 22}
    assert outages.availability(table(rows), 3, 2, 22) == pytest.approx(1 - len(out) / 60)


@given(stretches)
def test_the_mean_at_once_is_the_time_out_over_the_time(rows: list[tuple[str, int, int]]) -> None:
    out = sum(1 for _, start, length in rows for day in range(start, start + length) if 2 <= day < 22)
    assert outages.mean_open(table(rows), 2, 22) == pytest.approx(out / 20)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=15), st.integers(1, 30))
def test_the_most_within_a_stretch_is_what_trying_every_stretch_finds(starts: list[int], days: int) -> None:
    found = most_within(pl.DataFrame({"node": "a", "start_day": [float(s) for s in starts]}), days)
    assert found["most"].item() == max(sum(s <= other <= s + days for other in starts) for s in starts)


def test_an_outage_lasts_from_the_drain_to_the_next_repair() -> None:
    found = outages.of_records(
        records(
            ("a", 1, "drained"), ("a", 2, "drained"), ("a", 3, "ticket"), ("a", 5, "repaired"),
            ("a", 9, "drained"), ("b", 4, "repaired"), ("b", 20, "drained"), ("c", -3, "drained"), ("c", 2, "repaired"),
            ("d", -9, "drained"), ("d", -7, "repaired"), ("e", 40, "drained"),
        ),
        MONTH,
    )  # fmt: skip
    assert found.rows() == [
        ("a", 1, 5, True),
        ("a", 9, 30, False),
        ("b", 20, 30, False),
        ("c", -3, 2, True),
    ]


def test_of_drains_that_overlap_the_first_repair_returns_no_node() -> None:
    nested = records(("a", 1, "drained"), ("a", 2, "drained"), ("a", 3, "repaired"), ("a", 9, "repaired"))
    assert outages.of_records(nested, MONTH).rows() == [("a", 1, 9, True)]
    chained = records(
        ("a", 1, "drained"), ("a", 3, "drained"), ("a", 5, "repaired"), ("a", 7, "drained"), ("a", 8, "repaired"),
        ("a", 9, "resumed"),
    )  # fmt: skip
    assert outages.of_records(chained, MONTH).rows() == [("a", 1, 9, True)]
    apart = records(("a", 1, "drained"), ("a", 2, "repaired"), ("a", 3, "drained"), ("a", 9, "repaired"))
    assert outages.of_records(apart, MONTH)["end_day"].to_list() == [2, 9]


@pytest.mark.parametrize("kinds", [("repaired", "drained"), ("drained", "repaired")])
def test_a_drain_and_its_repair_in_one_second_leave_nothing_open(kinds: tuple[str, str]) -> None:
    rows = records(*(("a", 4, kind) for kind in kinds))
    assert outages.of_records(rows, MONTH).rows() == [("a", 4, 4, True)]
    assert outages.of_records(records(("a", 4, "drained")), MONTH).rows() == [("a", 4, 30, False)]


overlapping = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-5, 25), st.integers(0, 9)), max_size=10)


@given(overlapping)
def test_the_time_out_is_the_union_of_all_stretches(rows: list[tuple[str, int, int]]) -> None:
    made = records(*((n, d, k) for n, s, d2 in rows for d, k in ((s, "drained"), (s + d2, "repaired"))))
    found = outages.of_records(made, MONTH)
    out = {(n, day) for n, start, length in rows for day in range(start, start + length) if 0 <= day < 30}
    assert outages.availability(found, 2, 0, 30) == pytest.approx(1 - len(out) / 60)
    assert outages.mean_open(found, 0, 30) == pytest.approx(len(out) / 30)


def test_the_published_trace_has_as_many_nodes_out_as_a_loop_over_it_finds() -> None:
    """InfiniteHBD: 400 servers, 349 days, faults that overlap on one node: 9.26 nodes out, 0.977 available."""
    events = json.loads(lzma.decompress(TRACE.read_bytes()))
    depth: dict[str, int] = {}
    since: dict[str, float] = {}
    down = 0.0
    for event in sorted(events, key=lambda e: (e["event_time"], e["event_type"] == "fault_end")):
        node, day = event["node_id"], event["event_time"]
        if event["event_type"] == "fault_start":
            since.setdefault(node, day)
            depth[node] = depth.get(node, 0) + 1
        else:
            depth[node] -= 1
            if depth[node] == 0:
                down += min(day, 349) - since.pop(node)
    down += sum(349 - day for day in since.values())
    kinds = {"fault_start": "drained", "fault_end": "repaired"}
    rows = records(*((e["node_id"], e["event_time"], kinds[e["event_type"]]) for e in events))
    found = outages.of_records(rows, Window(BEGIN, BEGIN + timedelta(days=349)))
    assert outages.mean_open(found, 0, 349) == pytest.approx(down / 349, rel=1e-4)
    assert outages.mean_open(found, 0, 349) == pytest.approx(9.26, abs=0.01)
    assert outages.availability(found, 400, 0, 349) == pytest.approx(0.977, abs=0.0005)


def test_no_outage_has_no_mean() -> None:
    none = outages.downtime(table([]))
    assert none.outages == 0
    assert math.isnan(none.mean_days)
    assert outages.most_open(table([])) == 0
    assert outages.availability(table([]), 5, 0, 10) == 1


def study(*rows: tuple[str, float, str]) -> Study:
    made = simulate.fleet(1, simulate.Fleet(nodes=20, days=30, jobs=500, start=BEGIN))
    now = BEGIN + timedelta(days=30)
    return Study(history.of(made.jobs, made.events, now, BEGIN, now, records(*rows)))


def test_the_report_sizes_spares_from_measured_repairs() -> None:
    repairs = [
        (f"node{n:05d}", d + hours, k)
        for n in range(10)
        for d in (1, 15)
        for hours, k in ((0, "drained"), (2, "repaired"))
    ]
    (section,) = downtime_sections(study(*repairs))
    rows = {r["name"]: r for r in section.table.to_dicts()}
    assert rows["outages"]["value"] == 20
    assert rows["mean downtime of repaired nodes"]["value"] == pytest.approx(2)
    assert rows["nodes out at once, mean"]["value"] == pytest.approx(20 * 2 / 30)
    spare = rows["hot spares for 99% of the time (model)"]
    assert (spare["value"], spare["kind"]) == (5, "model")  # Poisson mean 1.33


def test_without_repairs_there_is_no_size_and_without_records_nothing_is_measured() -> None:
    (section,) = downtime_sections(study(("node00001", 3, "drained")))
    assert not any("spares" in name for name in section.table["name"])
    assert "outages: 1 still open at the end" in section.notes
    for past in (study(), Study(history.of(empty(JOBS), empty(EVENTS), BEGIN))):
        (nothing,) = downtime_sections(past)
        assert (nothing.table.height, nothing.notes[0][:13]) == (0, "not measured:")
