"""Job history from sacct -P: the real samples, and what users manage to put into a field."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis.history.history import read_jobs
from nodetriage.analysis.imports import sacct, sacct_lines
from nodetriage.analysis.tables import JOBS, TableError

SAMPLES = Path(__file__).parents[1] / "data" / "sacct"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADER = "JobID|State|Submit|Start|End|ElapsedRaw|Suspended|NNodes|NodeList|AllocTRES|SubmitLine|JobName"


def row(job_id: str = "1", **fields: str) -> str:
    values = {
        "JobID": job_id,
        "State": "COMPLETED",
        "Submit": "2025-03-01T10:00:00",
        "Start": "2025-03-01T10:05:00",
        "End": "2025-03-01T11:05:00",
        "ElapsedRaw": "3600",
        "Suspended": "00:00:00",
        "NNodes": "2",
        "NodeList": "n[1-2]",
        "AllocTRES": "billing=2,cpu=2,gres/gpu=16,node=2",
        "SubmitLine": "sbatch job.sh",
        "JobName": "train",
        **fields,
    }
    return "|".join(values[c] for c in HEADER.split("|"))


def read(tmp_path: Path, *lines: str, header: str = HEADER, zone: str = "UTC") -> sacct.Imported:
    path = tmp_path / "sacct.txt"
    path.write_bytes("\n".join([header, *lines, ""]).encode("utf-8", "surrogateescape"))
    return sacct.read_sacct(path, NOW, zone)


@pytest.mark.parametrize(
    ("name", "jobs", "kept", "left_out"),
    [
        ("all-columns-2lines", 0, {}, {"a step, not a job": 1}),
        ("fake-line-break", 2, {"a line break in a field": 1}, {"a step, not a job": 2}),
        ("one-multiline", 2, {"a line break in a field": 1}, {"a step, not a job": 2}),
        (
            "multiple-multiline",
            2,
            {"a line break in a field": 3},
            {"a step, not a job": 2, "the same run twice": 2},
        ),
        ("invalid-utf8", 2, {"not UTF-8, read as Latin-1": 1}, {"a step, not a job": 9}),
        ("midnight-edge-case-small", 3, {}, {"a step, not a job": 8}),
        ("with-invalid-lines", 0, {}, {"too few fields": 1}),
        ("running-output", 0, {}, {"a step, not a job": 10}),
    ],
)
def test_a_real_sample_is_read_and_its_oddities_are_counted(
    name: str, jobs: int, kept: dict[str, int], left_out: dict[str, int]
) -> None:
    found = read_jobs(SAMPLES / f"{name}.txt", NOW)
    assert (found.frame.height, found.problems.kept, found.problems.left_out) == (jobs, kept, left_out)


def test_states_of_the_large_sample_are_those_that_its_readme_counts() -> None:
    found = sacct.read_sacct(SAMPLES / "midnight-edge-case.txt", NOW).frame
    assert dict(found["state"].value_counts().iter_rows()) == {
        "FAILED": 259,
        "CANCELLED": 24,
        "COMPLETED": 18,
        "OUT_OF_MEMORY": 2,
        "REQUEUED": 2,
        "TIMEOUT": 1,
    }


def test_a_job_of_the_samples_has_its_nodes_gpus_and_times() -> None:
    found = sacct.read_sacct(SAMPLES / "fake-line-break.txt", NOW).frame
    first = found.filter(job_id="201729").to_dicts()[0]
    assert (len(first["nodes"]), first["node_count"], first["gpus"]) == (128, 128, 1024)
    assert first["start_at"] == datetime(2023, 1, 15, 3, 1, 10, tzinfo=UTC)


def test_every_column_lands_where_it_belongs(tmp_path: Path) -> None:
    line = row("120_3", State="CANCELLED by 1000", SubmitLine="sbatch --exclude=n[7-8] -N2 job.sh")
    found = read(tmp_path, line).frame.to_dicts()[0]
    assert (found["job_id"], found["state"], found["name"]) == ("120_3", "CANCELLED", "train")
    assert (found["nodes"], found["gpus"], found["excluded_nodes"]) == (["n1", "n2"], 16, ["n7", "n8"])
    assert found["end_at"] - found["start_at"] == timedelta(hours=1)


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=4,gres/gpu=8,gres/gpu:h100=8,node=1", 8),
        ("cpu=4,gres/gpu:a100=4,gres/gpu:h100=2,node=1", 6),
        ("cpu=4,mem=1G,node=1", 0),
        ("", None),
    ],
)
def test_gpus_are_counted_once_whatever_their_type(tmp_path: Path, tres: str, gpus: int | None) -> None:
    assert read(tmp_path, row(AllocTRES=tres)).frame["gpus"].to_list() == [gpus]


def test_a_running_job_has_no_end_and_one_that_never_started_no_start(tmp_path: Path) -> None:
    running = row("1", State="RUNNING", End="Unknown")
    cancelled = row("2", State="CANCELLED by 0", Start="None", NodeList="None assigned", AllocTRES="")
    found = read(tmp_path, running, cancelled)
    assert found.frame.sort("job_id")["end_at"].is_null().to_list() == [True, False]
    assert found.frame.sort("job_id")["start_at"].is_null().to_list() == [False, True]
    assert not found.problems.rows_left_out


def test_a_delimiter_in_a_job_name_is_put_back(tmp_path: Path) -> None:
    found = read(tmp_path, row(JobName="a|b|c"), row("2"))
    assert found.frame.sort("job_id")["name"].to_list() == ["a b c", "train"]
    assert found.problems.kept == {"a delimiter in a field": 1}


def test_a_row_with_too_many_fields_that_fits_nowhere_is_counted(tmp_path: Path) -> None:
    found = read(tmp_path, row("1") + "|x", header="JobID|State")
    assert found.problems.left_out == {"too many fields": 1}


def test_a_line_break_does_not_take_the_next_record_with_it(tmp_path: Path) -> None:
    torn, rest = row("1", SubmitLine="sbatch\n--wrap x").split("\n")
    found = read(tmp_path, row("0"), torn, rest, row("2"), "loose end", row("3"))
    assert sorted(found.frame["job_id"]) == ["0", "1", "2", "3"]
    assert found.problems.kept == {"a line break in a field": 1}
    assert found.problems.left_out == {"too few fields": 1}


def test_a_record_torn_across_blocks_is_joined() -> None:
    lines = [row(str(i), SubmitLine="one\ntwo\nthree") for i in range(50)]
    source = io.BytesIO("\n".join([HEADER, *lines, ""]).encode())
    batches = list(sacct.rows_of(source, block_bytes=100))
    assert sum(b.frame.height for b in batches) == 50
    assert sum(b.problems.kept["a line break in a field"] for b in batches if b.problems.kept) == 50


def test_windows_line_ends_and_a_header_in_between_change_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, row("1") + "\r", HEADER, row("2"))
    assert sorted(found.frame["job_id"]) == ["1", "2"]
    assert found.frame["name"].to_list() == ["train", "train"]
    assert found.problems.kept == {"the header again": 1}


def test_local_times_become_utc(tmp_path: Path) -> None:
    found = read(tmp_path, row(), zone="Europe/Berlin").frame
    assert found["start_at"].to_list() == [datetime(2025, 3, 1, 9, 5, tzinfo=UTC)]


def test_a_job_over_the_end_of_summer_time_has_its_true_length(tmp_path: Path) -> None:
    # 02:30 comes twice that night; the job that ends at the second one ran two hours, not one.
    line = row(Submit="2025-10-26T01:00:00", Start="2025-10-26T01:30:00", End="2025-10-26T02:30:00", ElapsedRaw="7200")
    found = read(tmp_path, line, zone="Europe/Berlin")
    run = found.frame["end_at"][0] - found.frame["start_at"][0]
    assert run == timedelta(hours=2)
    assert found.problems.kept == {"an end corrected by an hour (clock change)": 1}


def test_times_may_be_unix_seconds_or_carry_their_offset(tmp_path: Path) -> None:
    found = read(tmp_path, row(Start="1740823500", End="2025-03-01T12:05:00+0100")).frame.to_dicts()[0]
    assert found["start_at"] == datetime(2025, 3, 1, 10, 5, tzinfo=UTC)
    assert found["end_at"] == datetime(2025, 3, 1, 11, 5, tzinfo=UTC)


def test_what_cannot_be_read_is_counted_by_field(tmp_path: Path) -> None:
    found = read(tmp_path, row(Submit="soon", NodeList="n[1-"))
    assert found.problems.kept["submit cannot be read"] == 1
    assert found.problems.kept["a node list that cannot be expanded"] == 1
    assert found.frame.height == 1


@pytest.mark.parametrize("text", ["hello\nworld\n", "JobID|Name\n1|x\n", "\x00\x01\x02"])
def test_a_file_that_is_not_sacct_output_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(TableError, match=r"notes\.txt: not the output of sacct -P"):
        sacct.read_sacct(path, NOW)


def test_an_empty_file_has_no_jobs(tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("")
    assert sacct.read_sacct(tmp_path / "none.txt", NOW).frame.height == 0


names = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="|\r\x00"), max_size=12)


@given(st.lists(names, min_size=1, max_size=8))
def test_a_name_may_hold_any_text_without_hurting_another_record(found_names: list[str]) -> None:
    # The name stands inside a record here: a break at a record's very end has nothing after it that shows it.
    header = "JobID|JobName|State|End"
    lines = [f"{i}|{name}|COMPLETED|2025-03-01T11:05:00" for i, name in enumerate(found_names)]
    source = io.BytesIO("\n".join([header, *lines, ""]).encode())
    records = [line for _, block, _ in sacct_lines.records(source) for line in block]
    assert records == lines


@given(st.binary(max_size=200))
def test_no_bytes_after_a_header_raise(junk: bytes) -> None:
    source = io.BytesIO(b"JobID|State|JobName\n" + junk)
    for batch in sacct.rows_of(source):
        assert batch.frame.schema == pl.Schema(JOBS)


def berlin(tmp_path: Path, start: str, end: str, elapsed: int, **columns: str) -> tuple[datetime, datetime]:
    line = row(Submit=start, Start=start, End=end, ElapsedRaw=str(elapsed), **columns)
    (found,) = read(tmp_path, line, zone="Europe/Berlin").frame.to_dicts()
    return found["start_at"], found["end_at"]


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "start_utc", "end_utc"),
    [
        ("02:30", "10:00", 27_000, (1, 30), (9, 0)),  # started in the second 02:30
        ("02:30", "10:00", 30_600, (0, 30), (9, 0)),  # in the first
        ("01:30", "02:30", 7200, (23, 30), (1, 30)),  # ended in the second
        ("01:30", "02:30", 3600, (23, 30), (0, 30)),
        ("02:10", "02:50", 6000, (0, 10), (1, 50)),  # from the first to the second
        ("02:10", "02:50", 2400, (0, 10), (0, 50)),
        ("04:00", "10:00", 18_000, (3, 0), (9, 0)),  # nothing comes twice here: the times stand
    ],
)
def test_the_hour_that_comes_twice_moves_the_time_that_lies_in_it(
    tmp_path: Path, start: str, end: str, elapsed: int, start_utc: tuple[int, int], end_utc: tuple[int, int]
) -> None:
    first, last = berlin(tmp_path, f"2025-10-26T{start}:00", f"2025-10-26T{end}:00", elapsed)
    assert ((first.hour, first.minute), (last.hour, last.minute)) == (start_utc, end_utc)


STEPPED = "JobID|State|ExitCode|Start|End|NodeList"


def stepped(job: str, state: str, code: str = "0:0") -> str:
    return f"{job}|{state}|{code}|2025-03-01T10:05:00|2025-03-01T11:05:00|n1"


def test_steps_that_ended_badly_are_counted_with_their_job(tmp_path: Path) -> None:
    lines = [
        stepped("1", "COMPLETED"), stepped("1.batch", "COMPLETED"), stepped("1.0", "FAILED", "0:9"),
        stepped("1.1", "CANCELLED by 7", "0:15"), stepped("2", "COMPLETED"), stepped("2.batch", "COMPLETED"),
        stepped("3", "COMPLETED"),
    ]  # fmt: skip
    found = read(tmp_path, *lines, header=STEPPED)
    assert dict(found.frame.select("job_id", "failed_steps").iter_rows()) == {"1": 2, "2": 0, "3": None}
    torn = list(sacct.rows_of(io.BytesIO("\n".join([STEPPED, *lines, ""]).encode()), block_bytes=70))
    rows = [r for b in torn for r in b.frame.select("job_id", "failed_steps").rows()]
    assert rows == [("1", 2), ("2", 0), ("3", None)]
    assert sum(b.problems.left_out.get("a step, not a job", 0) for b in torn) == 4


def test_without_steps_the_derived_exit_code_says_that_one_ended_badly(tmp_path: Path) -> None:
    header = STEPPED + "|DerivedExitCode|FailedNode"
    lines = [stepped("1", "COMPLETED") + "|9:0|", stepped("2", "COMPLETED") + "|0:0|n1"]
    found = read(tmp_path, *lines, header=header).frame.sort("job_id")
    assert found["failed_steps"].to_list() == [1, 0]
    assert found["failed_node"].to_list() == [None, "n1"]


ALIGNED = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
1488666      a1ql_2012+       main      acct1          4 OUT_OF_ME+    0:125
"""


def test_a_table_without_separators_or_without_times_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(ALIGNED)
    with pytest.raises(TableError, match=r"jobs\.txt: an aligned table.*sacct with -P"):
        read_jobs(path, NOW)
    path.write_text("JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|a|gpu|b|4|COMPLETED|0:0\n")
    with pytest.raises(TableError, match=r"no column Start, End.*sacct -a -X -D -P"):
        read_jobs(path, NOW)
    path.write_text("JobID|State|End\n1|COMPLETED|2025-03-01T10:05:00\n")
    assert read_jobs(path, NOW).frame.height == 1
