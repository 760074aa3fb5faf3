"""What makes a row of jobs, events or outages sound; what is wrong is counted by kind, never lost without a word."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis import tables
from nodetriage.analysis.imports import csv_tables
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, TableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = datetime(2025, 6, 1, tzinfo=UTC)


def jobs(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**dict.fromkeys(JOBS), **r} for r in rows], schema=dict(JOBS), orient="row")


GOOD = {
    "job_id": "1",
    "state": "COMPLETED",
    "start_at": START,
    "end_at": START + timedelta(hours=1),
    "nodes": ["n1"],
    "node_count": 1,
    "gpus": 8,
}


def test_a_sound_row_is_kept_as_it_is() -> None:
    found = tables.sound_jobs(jobs(GOOD), NOW)
    assert found.problems == tables.Problems()
    assert found.frame.schema == pl.Schema(JOBS)
    assert found.frame.select("job_id", "attempt", "gpus").row(0) == ("1", 1, 8)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"job_id": None}, "no job id"),
        ({"state": ""}, "no state"),
        ({"end_at": START - timedelta(seconds=1)}, "ends before it starts"),
        ({"start_at": datetime(1970, 1, 2, tzinfo=UTC)}, "a time before 2000 or in the future"),
        ({"end_at": NOW + timedelta(days=400)}, "a time before 2000 or in the future"),
        ({"gpus": -8}, "less than no GPU or node"),
    ],
)
def test_a_row_that_cannot_be_true_is_left_out_and_counted(change: dict[str, Any], kind: str) -> None:
    found = tables.sound_jobs(jobs(GOOD, {**GOOD, "job_id": "2", **change}), NOW)
    assert found.frame["job_id"].to_list() == ["1"]
    assert found.problems.left_out == {kind: 1}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"state": "EXPLODED"}, "state is not one of Slurm's"),
        ({"end_at": None}, "final state without an end time"),
        ({"submit_at": START + timedelta(hours=1)}, "starts before it was submitted"),
        ({"nodes": []}, "ran without a node list"),
        ({"node_count": 3}, "node count differs from the node list"),
        ({"gpus": None}, "number of GPUs unknown"),
    ],
)
def test_a_doubtful_row_is_kept_and_counted(change: dict[str, Any], kind: str) -> None:
    found = tables.sound_jobs(jobs({**GOOD, **change}), NOW)
    assert found.frame.height == 1
    assert found.problems.kept == {kind: 1}


def test_of_one_run_told_twice_the_row_that_knows_its_end_stays() -> None:
    running = {**GOOD, "state": "RUNNING", "end_at": None}
    found = tables.sound_jobs(jobs(GOOD, running), NOW)
    assert found.frame["state"].to_list() == ["COMPLETED"]
    assert found.problems.left_out == {"the same run twice": 1}


def test_requeued_runs_of_one_id_are_kept_apart_and_numbered_by_start() -> None:
    later = {**GOOD, "start_at": START + timedelta(hours=2), "end_at": START + timedelta(hours=3)}
    found = tables.sound_jobs(jobs(later, GOOD), NOW).frame.sort("start_at")
    assert found["attempt"].to_list() == [1, 2]


def test_a_column_that_is_not_known_is_named_and_a_missing_one_is_null() -> None:
    found = tables.sound_jobs(pl.DataFrame({"job_id": ["1"], "state": ["COMPLETED"], "colour": ["red"]}), NOW)
    assert found.problems.kept["column colour is not known"] == 1
    assert found.frame["gpus"].to_list() == [None]


def test_a_table_without_its_key_columns_is_refused_by_name() -> None:
    with pytest.raises(TableError, match="no column state; found job_id"):
        tables.sound_jobs(pl.DataFrame({"job_id": ["1"]}), NOW)


def test_events_are_ordered_and_impossible_ones_counted() -> None:
    rows = [
        {"node": "n1", "at": START + timedelta(hours=1), "fault": "b", "severity": 4, "kind": "raised"},
        {"node": "n1", "at": START, "fault": "a", "severity": 4, "kind": "raised"},
        {"node": "n1", "at": START, "fault": "a", "severity": 4, "kind": "raised"},
        {"node": "", "at": START, "fault": "a", "severity": 4, "kind": "raised"},
        {"node": "n1", "at": None, "fault": "a", "severity": 4, "kind": "raised"},
        {"node": "n1", "at": START, "fault": "a", "severity": 9, "kind": "raised"},
        {"node": "n1", "at": START, "fault": "a", "severity": 4, "kind": "sang"},
    ]
    frame = pl.DataFrame([{**dict.fromkeys(EVENTS), **r} for r in rows], schema=dict(EVENTS), orient="row")
    found = tables.sound_events(frame, NOW)
    assert found.frame["fault"].to_list() == ["a", "b"]
    assert found.problems.left_out == {
        "no node": 1,
        "no time": 1,
        "severity is not 1 to 4": 1,
        "kind is not known": 1,
        "the same event twice": 1,
    }


def test_outages_of_an_unknown_kind_are_counted() -> None:
    rows = [{"node": "n1", "at": START, "kind": k, "cause": ""} for k in ("drained", "lost", None)]
    found = tables.sound_outages(pl.DataFrame(rows, schema=dict(OUTAGES), orient="row"), NOW)
    assert found.frame["kind"].to_list() == ["drained", "drained"]
    assert found.problems.left_out == {"kind is not known": 1}


times = st.none() | st.integers(600_000_000, 2_200_000_000).map(lambda s: datetime.fromtimestamp(s, UTC))
rows_of_jobs = st.fixed_dictionaries(
    {
        "job_id": st.none() | st.sampled_from(["", "1", "2_3"]),
        "state": st.none() | st.sampled_from(["", "COMPLETED", "RUNNING", "NOISE"]),
        "start_at": times,
        "end_at": times,
        "nodes": st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "gpus": st.none() | st.integers(-5, 10_000),
    }
)


@given(st.lists(rows_of_jobs, max_size=20))
def test_every_row_is_in_the_table_or_counted_as_left_out(rows: list[dict[str, Any]]) -> None:
    found = tables.sound_jobs(jobs(*rows), NOW)
    assert found.frame.height + found.problems.rows_left_out == len(rows)


def test_parquet_gives_back_what_was_written(tmp_path: Path) -> None:
    before = tables.sound_jobs(jobs(GOOD, {**GOOD, "job_id": "2", "end_at": None, "state": "RUNNING"}), NOW).frame
    tables.write_parquet(before, tmp_path / "jobs.parquet")
    assert tables.read_parquet(tmp_path / "jobs.parquet").equals(before)


def test_a_file_that_is_not_parquet_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "jobs.parquet").write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(TableError, match=r"jobs\.parquet: not a Parquet file"):
        tables.read_parquet(tmp_path / "jobs.parquet")


def test_csv_reads_lists_and_times_with_and_without_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,state,start_at,end_at,nodes,gpus\n"
        '1,COMPLETED,2025-06-01T00:00:00,2025-06-01 03:00:00+02:00,"n[1-2],n4",24\n'
        "2,FAILED,yesterday,2025-06-01T05:00:00,n1,many\n"
    )
    read = csv_tables.read_csv(path, JOBS)
    first, second = read.frame.to_dicts()
    assert first["nodes"] == ["n1", "n2", "n4"]
    assert first["end_at"] - first["start_at"] == timedelta(hours=1)
    assert (second["start_at"], second["gpus"]) == (None, None)
    assert read.problems.kept == {"start_at cannot be read": 1, "gpus cannot be read": 1}


def test_an_empty_csv_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("")
    assert csv_tables.read_csv(tmp_path / "events.csv", EVENTS).frame.height == 0
