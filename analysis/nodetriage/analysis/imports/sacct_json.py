"""Job history from `sacct --json`, a job at a time: Slurm 22.05 (plain values) to 24.11 (lists, {set, number})."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from nodetriage.analysis.imports.sacct import BAD_STEPS, normalise
from nodetriage.analysis.tables import JOBS, Imported, Problems, TableError, empty, sound_jobs

BATCH_JOBS = 20_000
_READ_CHARS = 1 << 20
_MOST_CHARS = 64 << 20  # a single job longer than this is no job

_JOBS = re.compile(r'"jobs"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")

_COLUMNS = (
    "jobid",
    "cluster",
    "jobname",
    "user",
    "partition",
    "qos",
    "state",
    "exitcode",
    "submit",
    "eligible",
    "start",
    "end",
    "nnodes",
    "nodelist",
    "alloctres",
    "restarts",
    "submitline",
    "failednode",
    "derivedexitcode",
)


def read_sacct_json(path: Path, now: datetime) -> Imported:
    """The jobs in a file of `sacct --json`. Its times are Unix seconds. Raises TableError where it is no such file."""
    frames, problems = [], Problems()
    try:
        with path.open(encoding="utf-8", errors="replace") as source:
            for batch in batches(source):
                frames.append(batch.frame)
                problems += batch.problems
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    except TableError as error:
        raise TableError(f"{path}: {error}") from error
    jobs = sound_jobs(pl.concat(frames) if frames else empty(JOBS), now)
    return Imported(jobs.frame, problems + jobs.problems)


def batches(source: TextIO) -> Iterator[Imported]:
    """Rows of JOBS, BATCH_JOBS at a time, not yet validated. Raises TableError where there is no list."""
    rows: list[dict[str, str | None]] = []
    left_out: dict[str, int] = {}
    for job in _jobs(source):
        row = _row(job) if isinstance(job, dict) else None
        if row is None:
            kind = "the file ends within a job" if job is _CUT_OFF else "a job that cannot be read"
            left_out[kind] = left_out.get(kind, 0) + 1
        else:
            rows.append(row)
        if len(rows) == BATCH_JOBS:
            yield _batch(rows, {})
            rows = []
    yield _batch(rows, left_out)


_CUT_OFF = object()


def _jobs(source: TextIO) -> Iterator[object]:
    """The values of the top-level list `jobs`, one by one, without holding the file."""
    buffer, at = _opened(source)
    decoder = json.JSONDecoder()
    while True:
        at = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]  # the pattern matches nothing, too
        if buffer[at : at + 1] == "]":
            return
        try:
            job, end = decoder.raw_decode(buffer, at) if at < len(buffer) else (None, -1)
        except json.JSONDecodeError:
            end = -1
        if end >= 0:
            yield job
            at = end
            continue
        # As much again as there is: a job of many steps is not decoded once for each block of it.
        more = source.read(max(_READ_CHARS, len(buffer) - at))
        if not more or len(buffer) - at > _MOST_CHARS:
            yield _CUT_OFF
            return
        buffer, at = buffer[at:] + more, 0


def _opened(source: TextIO) -> tuple[str, int]:
    """The first text up to and including the bracket that opens the list, and where it ends."""
    head = ""
    while more := source.read(_READ_CHARS):
        head += more
        if match := _JOBS.search(head):
            return head, match.end()
        if not head.lstrip().startswith("{"):
            break
    raise TableError('not the output of sacct --json: expected an object with a list "jobs"')


def _batch(rows: list[dict[str, str | None]], left_out: dict[str, int]) -> Imported:
    raw = pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String), orient="row")
    shaped = normalise(raw, "UTC")
    return Imported(shaped.frame, shaped.problems + Problems(left_out=left_out))


def _row(job: dict[str, Any]) -> dict[str, str | None] | None:
    """A job of any of the shapes as the text that sacct -P would have printed; None where it has no id or state."""
    job_id, state = _job_id(job), _state(job)
    if job_id is None or state is None:
        return None
    time = _table(job, "time")
    return {
        "jobid": job_id,
        "cluster": _text(job.get("cluster")),
        "jobname": _text(job.get("name")),
        "user": _text(job.get("user")) or _text(_table(job, "association").get("user")),
        "partition": _text(job.get("partition")),
        "qos": _text(job.get("qos")),
        "state": state,
        "exitcode": _exit_code(_table(job, "exit_code"), state),
        "submit": _text(time.get("submission")),
        "eligible": _text(time.get("eligible")),
        "start": _text(time.get("start")),
        "end": _text(time.get("end")),
        "nnodes": _text(job.get("allocation_nodes")),
        "nodelist": _text(job.get("nodes")),
        "alloctres": _tres(_table(job, "tres").get("allocated")),
        "restarts": _text(job.get("restart_cnt")),
        "submitline": _text(job.get("submit_line")),
        "failednode": _text(job.get("failed_node")),
        "derivedexitcode": _steps(job),
    }


def _job_id(job: dict[str, Any]) -> str | None:
    array = _table(job, "array")
    parent, task = _number(array.get("job_id")), _number(array.get("task_id"))
    if parent and task is not None:
        return f"{parent}_{task}"
    het = _table(job, "het")
    leader, offset = _number(het.get("job_id")), _number(het.get("job_offset"))
    if leader and offset is not None:
        return f"{leader}+{offset}"
    return _text(job.get("job_id"))


def _state(job: dict[str, Any]) -> str | None:
    current = _table(job, "state").get("current")
    if isinstance(current, list):
        # The base state comes first; flags follow.
        current = current[0] if current else None
    return current if isinstance(current, str) else None


def _exit_code(code: dict[str, Any], state: str) -> str | None:
    status = _number(code.get("return_code"))
    if status == 0 and state == "FAILED":
        # sacct 22.05 writes 0 whatever the job's exit code was; so it is dropped.
        return None
    signal = _table(code, "signal")
    number = _number(signal.get("id", signal.get("signal_id")))
    return None if status is None else f"{status}:{number or 0}"


def _steps(job: dict[str, Any]) -> str | None:
    """The exit code of a step that ended badly, 0:0 where all ended well; None where the job has no list of steps."""
    steps = job.get("steps")
    if not isinstance(steps, list) or not steps:
        return None
    for step in (s for s in steps if isinstance(s, dict)):
        state = step.get("state")
        first = state[0] if isinstance(state, list) and state else state
        if isinstance(first, str) and first in BAD_STEPS:
            code = _exit_code(_table(step, "exit_code"), first)
            return code if code not in (None, "0:0") else "1:0"
    return "0:0"


def _tres(allocated: object) -> str | None:
    if not isinstance(allocated, list) or not allocated:
        return None
    found = []
    for entry in (e for e in allocated if isinstance(e, dict)):
        name = f"{entry.get('type')}/{entry['name']}" if entry.get("name") else f"{entry.get('type')}"
        found.append(f"{name}={_number(entry.get('count')) or 0}")
    return ",".join(found)


def _number(value: object) -> int | None:
    """A number as 22.05 writes it (or null) and as 24.11 does: {"set": true, "infinite": false, "number": 1}."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 1e18:
        return None
    return int(value)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value or None
    number = _number(value)
    return None if number is None else str(number)


def _table(of: dict[str, Any], key: str) -> dict[str, Any]:
    value = of.get(key)
    return value if isinstance(value, dict) else {}
