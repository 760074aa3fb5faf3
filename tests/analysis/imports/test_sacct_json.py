"""Job history from sacct --json, in the shapes of Slurm 22.05 and 24.11."""

import copy
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis.history.history import read_jobs
from nodetriage.analysis.imports import sacct_json
from nodetriage.analysis.tables import TableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = 1_740_823_500  # 2025-03-01 10:05 UTC

OLD = {
    "job_id": 77,
    "array": {"job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task": None, "task_id": None},
    "het": {"job_id": 0, "job_offset": None},
    "name": "train",
    "user": "ada",
    "partition": "gpu",
    "qos": "high",
    "state": {"current": "NODE_FAIL", "reason": "None"},
    "exit_code": {"status": "SUCCESS", "return_code": 0},
    "time": {"submission": START - 300, "eligible": START - 300, "start": START, "end": START + 3600, "elapsed": 3600},
    "nodes": "n[1-2]",
    "allocation_nodes": 2,
    "tres": {
        "allocated": [
            {"type": "cpu", "name": None, "id": 1, "count": 64},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 16},
        ]
    },
    "steps": [{"time": {"start": START}}],
}


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


NEW = OLD | {
    "array": {"job_id": 70, "task_id": number(7), "task": ""},
    "het": {"job_id": 0, "job_offset": number(None)},
    "state": {"current": ["NODE_FAIL"], "reason": "None"},
    "exit_code": {"status": ["SIGNALED"], "return_code": number(1), "signal": {"id": number(9), "name": "KILL"}},
    "restart_cnt": 2,
    "submit_line": "sbatch -x n9 job.sh",
}


def document(*jobs: Any) -> str:
    return json.dumps({"meta": {"plugin": {}}, "errors": [], "jobs": list(jobs), "warnings": []}, indent=1)


def read(tmp_path: Path, text: str) -> sacct_json.Imported:
    path = tmp_path / "jobs.json"
    path.write_text(text)
    return read_jobs(path, NOW)


def test_a_job_of_22_05_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, document(OLD)).frame.to_dicts()[0]
    assert (found["job_id"], found["state"], found["exit_code"], found["user"]) == ("77", "NODE_FAIL", "0:0", "ada")
    assert (found["nodes"], found["node_count"], found["gpus"]) == (["n1", "n2"], 2, 16)
    assert found["start_at"] == datetime(2025, 3, 1, 10, 5, tzinfo=UTC)
    assert found["end_at"] - found["start_at"] == timedelta(hours=1)


def test_a_job_of_24_11_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, document(NEW)).frame.to_dicts()[0]
    assert (found["job_id"], found["state"], found["exit_code"]) == ("70_7", "NODE_FAIL", "1:9")
    assert (found["restarts"], found["excluded_nodes"]) == (2, ["n9"])


def test_a_running_job_has_no_end(tmp_path: Path) -> None:
    running = OLD | {"state": {"current": ["RUNNING"]}, "time": OLD["time"] | {"end": 0}}  # type: ignore[operator]
    assert read(tmp_path, document(running)).frame["end_at"].to_list() == [None]


def test_an_exit_code_that_cannot_be_true_is_none(tmp_path: Path) -> None:
    failed = OLD | {"state": {"current": "FAILED"}}
    assert read(tmp_path, document(failed)).frame["exit_code"].to_list() == [None]


def test_jobs_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    found = read(tmp_path, document(OLD, 5, {"job_id": 8}, None, NEW))
    assert found.frame.height == 2
    assert found.problems.left_out == {"a job that cannot be read": 3}


def test_a_file_that_was_cut_off_gives_what_came_before(tmp_path: Path) -> None:
    found = read(tmp_path, document(OLD, NEW)[:-600])
    assert found.frame["job_id"].to_list() == ["77"]
    assert found.problems.left_out == {"the file ends within a job": 1}


@pytest.mark.parametrize("text", ['{"errors": []}', '{"jobs": 5}', '{"jobs"'])
def test_an_object_without_jobs_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TableError, match=r"jobs\.json: not the output of sacct --json"):
        read(tmp_path, text)


def test_an_empty_list_is_an_empty_history(tmp_path: Path) -> None:
    assert read(tmp_path, document()).frame.height == 0


class Dribble(io.StringIO):
    """Hands out a few characters at a time, as a pipe may."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(size or 7, 7) if size and size > 0 else 7)


def test_jobs_are_the_same_however_the_text_arrives() -> None:
    jobs = [OLD | {"job_id": i, "name": '}],"jobs":[{' * i} for i in range(1, 6)]
    whole = list(sacct_json.batches(io.StringIO(document(*jobs))))
    dribbled = list(sacct_json.batches(Dribble(document(*jobs))))
    assert whole[0].frame.height == 5
    assert pl.concat(b.frame for b in dribbled).equals(pl.concat(b.frame for b in whole))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["set", "number", "id"]), inner),
    max_leaves=4,
)


@given(st.sampled_from(sorted(NEW)), junk)
def test_no_value_of_a_field_raises(field: str, value: Any) -> None:
    job = copy.deepcopy(NEW) | {field: value}
    batches = list(sacct_json.batches(io.StringIO(document(job))))
    found = sum(b.frame.height + b.problems.rows_left_out for b in batches)
    assert found == 1
