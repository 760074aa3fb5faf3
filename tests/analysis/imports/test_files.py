"""Input as people have it: packed, piped, in several files, and runs that more than one of them has."""

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodetriage.analysis.cli import main
from nodetriage.analysis.history import history
from nodetriage.analysis.history.history import Sources
from nodetriage.analysis.tables import TableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADER = "JobID|Cluster|User|State|Submit|Start|End|NNodes|NodeList|AllocTRES|Restarts"


def row(job: str, start: str, end: str, state: str = "COMPLETED", **columns: str) -> str:
    day = {"Cluster": "c", "User": "ada", "Submit": start, "Start": start, "End": end, "Restarts": "0"} | columns
    fields = {"JobID": job, "State": state, "NNodes": "1", "NodeList": "n1", "AllocTRES": "gres/gpu=8"} | day
    return "|".join(fields[c] for c in HEADER.split("|"))


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


ONE = row("1", "2025-06-01T00:00:00", "2025-06-01T06:00:00")
TWO = row("2", "2025-06-02T00:00:00", "2025-06-02T06:00:00")


def test_all_files_are_read_and_none_stands_for_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.txt", ONE), write(tmp_path / "b.txt", TWO)
    assert history.load(Sources(jobs=[a, b]), NOW).jobs["job_id"].to_list() == ["1", "2"]
    assert main.main(["report", "mttf", "--jobs", str(a), "--jobs", str(b), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sources"] == [str(a), str(b)]
    assert document["since"].startswith("2025-06-01")


def test_a_run_that_two_monthly_files_have_is_one_and_its_end_is_known(tmp_path: Path) -> None:
    running = row("1", "2025-06-01T00:00:00", "Unknown", "RUNNING")
    again = row("1", "2025-06-01T00:00:00", "2025-06-03T00:00:00", "NODE_FAIL")
    retry = row("1", "2025-06-03T01:00:00", "2025-06-04T00:00:00", Restarts="1")
    found = history.load(Sources(jobs=[write(tmp_path / "a", running), write(tmp_path / "b", again, retry)]), NOW)
    assert found.jobs.select("attempt", "state").rows() == [(1, "NODE_FAIL"), (2, "COMPLETED")]
    assert found.problems["all jobs together"].left_out == {"the same run in two files": 1}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_what_they_hold(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = tmp_path / "jobs.txt.gz"
    packed.write_bytes(pack(write(tmp_path / "a", ONE, TWO).read_bytes()))
    assert history.load(Sources(jobs=packed), NOW).jobs.height == 2
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(TableError, match=r"jobs\.txt\.gz: "):
        history.load(Sources(jobs=packed), NOW)


def test_a_pipe_and_standard_input_are_read_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write(tmp_path / "a", ONE, TWO).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(text),))
    writer.start()
    assert history.load(Sources(jobs=pipe), NOW).jobs.height == 2
    writer.join()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert history.load(Sources(jobs=Path("-")), NOW).jobs.height == 2


def test_standard_input_is_no_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["report", "--jobs", "-", "--events", "-"]) == 78
    assert "can be read once" in capsys.readouterr().err


def test_an_error_names_the_file_that_was_given(tmp_path: Path) -> None:
    packed = tmp_path / "odd.gz"
    packed.write_bytes(gzip.compress(b"what is this\n"))
    with pytest.raises(TableError, match=r"odd\.gz: neither"):
        history.load(Sources(jobs=packed), NOW)


def test_a_number_that_two_clusters_or_two_users_had_is_two_jobs(tmp_path: Path) -> None:
    rows = [
        row("1", "2025-06-01T00:00:00", "2025-06-01T06:00:00", "NODE_FAIL"),
        row("1", "2025-06-01T07:00:00", "2025-06-01T08:00:00", Restarts="1"),
        row("1", "2025-06-05T00:00:00", "2025-06-05T06:00:00", User="bob"),
        row("2", "2025-06-05T00:00:00", "2025-06-05T06:00:00"),
        row("2", "2025-06-05T00:00:00", "2025-06-05T06:00:00", Cluster="d"),
        row("3", "2025-06-05T00:00:00", "2025-06-05T06:00:00"),
    ]
    found = history.load(Sources(jobs=write(tmp_path / "a", *rows)), NOW)
    assert sorted(found.jobs.select("job_id", "attempt").rows()) == [
        ("1@ada", 1), ("1@ada", 2), ("1@bob", 1), ("2@c", 1), ("2@d", 1), ("3", 1),
    ]  # fmt: skip
