"""The two tables that every analysis reads, jobs and events: their columns, what a sound row is, Parquet in and out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import polars as pl

from nodetriage.analysis.identity import SHARED_ID, told_apart

TIME = pl.Datetime("us", "UTC")

Schema: TypeAlias = Mapping[str, pl.DataType]

# One row a run: a job that was requeued has one row for each attempt, all with the same job_id.
JOBS: Schema = {
    "job_id": pl.String(),  # 123, or 120_3 for task 3 of array 120
    "attempt": pl.Int32(),  # from 1, in order of start
    "cluster": pl.String(),
    "name": pl.String(),
    "user": pl.String(),
    "partition": pl.String(),
    "qos": pl.String(),
    "state": pl.String(),  # Slurm's base state: COMPLETED, FAILED, NODE_FAIL, PREEMPTED, ...
    "exit_code": pl.String(),  # status:signal
    "submit_at": TIME,
    "eligible_at": TIME,
    "start_at": TIME,  # null: never started
    "end_at": TIME,  # null: not ended
    "nodes": pl.List(pl.String()),
    "node_count": pl.Int32(),
    "gpus": pl.Int32(),  # allocated to the job, all nodes together; null: unknown
    "restarts": pl.Int32(),
    "excluded_nodes": pl.List(pl.String()),  # sbatch --exclude
    "preempted_by": pl.String(),  # job_id of the job that took its place; null: not known
    "failed_node": pl.String(),  # the node whose failure ended the job, as Slurm names it
    "failed_steps": pl.Int32(),  # steps that ended badly; null: not known
}

# One row an event that a node reported.
EVENTS: Schema = {
    "node": pl.String(),
    "at": TIME,
    "kind": pl.String(),  # one of KINDS
    "check": pl.String(),
    "component": pl.String(),
    "fault": pl.String(),
    "severity": pl.Int8(),  # 1 info, 2 warning, 3 major, 4 critical
    "xid": pl.Int32(),  # NVIDIA Xid code; null: not an Xid
}

# One row a time that a node was taken out, got a ticket, or was repaired.
OUTAGES: Schema = {
    "node": pl.String(),
    "at": TIME,
    "kind": pl.String(),  # one of OUTAGE_KINDS
    "cause": pl.String(),  # the fault that led to it; for a repair, the component that was replaced
}

# resumed: back in service, and no word of a repair; planned: maintenance, which is no failure.
OUTAGE_KINDS = ("drained", "ticket", "repaired", "resumed", "planned")

KINDS = ("raised", "changed", "repeated", "cleared", "outcome")

# Slurm's base job states (sacct(1), "JOB STATE CODES").
LIVE_STATES = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "STAGE_OUT", "STOPPED")
RUNNING_STATES = ("RUNNING", "COMPLETING", "SUSPENDED", "RESIZING")  # without an end: the job has nodes
FINAL_STATES = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REQUEUED",
    "REVOKED",
    "SPECIAL_EXIT",
    "TIMEOUT",
)

ONE_RUN = ("cluster", "user", "job_id", "attempt", "submit_at", "start_at")

_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)  # an earlier time comes from a clock that was never set
_AHEAD = timedelta(days=1)  # a time this far in the future is wrong


class TableError(Exception):
    """A file cannot be read as the table it should be; the text is one line for the person who gave it."""


@dataclass(frozen=True, slots=True)
class Problems:
    """What was wrong with an input: how many rows of each kind, and whether they are in the table."""

    kept: Mapping[str, int] = field(default_factory=dict)  # in the table, with a value removed or corrected
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Problems") -> "Problems":
        return Problems(_added(self.kept, other.kept), _added(self.left_out, other.left_out))

    @property
    def rows_left_out(self) -> int:
        return sum(self.left_out.values())


@dataclass(frozen=True, slots=True)
class Imported:
    """A table, and what was wrong with the input it came from."""

    frame: pl.DataFrame
    problems: Problems = field(default_factory=Problems)


def empty(schema: Schema) -> pl.DataFrame:
    """No rows, the right columns."""
    return pl.DataFrame(schema=dict(schema))


def conform(frame: pl.DataFrame, schema: Schema, required: tuple[str, ...]) -> Imported:
    """`frame` with exactly the columns of `schema`: others dropped, lacking ones null, values cast.

    A value that cannot be cast becomes null and is counted, and so is a column that is not known. Raises TableError
    where one of the `required` columns is missing.
    """
    missing = [c for c in required if c not in frame.columns]
    if missing:
        raise TableError(f"no column {', '.join(missing)}; found {', '.join(frame.columns) or 'none'}")
    shaped = frame.select(
        _cast(name, frame.schema[name], dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in schema.items()
    )
    kept = {f"column {c} is not known": frame.height for c in frame.columns if c not in schema and frame.height}
    for name in (c for c in schema if c in frame.columns):
        lost = shaped[name].null_count() - frame[name].null_count()
        if lost > 0:
            kept[f"{name} cannot be read"] = lost
    return Imported(shaped, Problems(kept=kept))


def sound_jobs(frame: pl.DataFrame, now: datetime) -> Imported:
    """The valid rows of `frame` (any columns of JOBS), one row a run, attempts numbered.

    Left out and counted: no id, a clock that was wrong, an end before the start, the same run twice (the row that
    knows its end wins). Kept and counted: what only some reports need.
    """
    shaped = conform(frame, JOBS, ("job_id", "state"))
    left_out, sound = _split(shaped.frame, _impossible_jobs(now))
    runs = sound
    if sound.select(ONE_RUN).n_unique() < sound.height:
        by_end = sound.sort("end_at", nulls_last=False, maintain_order=True)
        runs = by_end.unique(ONE_RUN, keep="last", maintain_order=True)
        left_out["the same run twice"] = sound.height - runs.height
    runs, shared = told_apart(runs)
    doubts = runs.select(e.fill_null(False).sum().alias(k) for k, e in _doubtful_jobs().items())
    kept = {k: n for k, n in doubts.to_dicts()[0].items() if n} if runs.height else {}
    if shared:
        kept[SHARED_ID] = shared
    return Imported(numbered(runs), shaped.problems + Problems(kept, left_out))


def sound_events(frame: pl.DataFrame, now: datetime) -> Imported:
    """The valid rows of `frame`, oldest first. Left out and counted: no node, no time, a wrong clock."""
    shaped = conform(frame, EVENTS, ("node", "at", "fault"))
    rows = shaped.frame.with_columns(
        pl.col("kind").fill_null("raised"), pl.col("check", "component", "fault").fill_null("")
    )
    left_out, sound = _split(rows, _impossible_events(now))
    unique = sound.unique(maintain_order=True)
    if unique.height < sound.height:
        left_out["the same event twice"] = sound.height - unique.height
    nameless = unique.filter((pl.col("fault") == "") & (pl.col("kind") != "outcome")).height
    kept = {"no fault code": nameless} if nameless else {}
    return Imported(unique.sort("at", maintain_order=True), shaped.problems + Problems(kept, left_out))


def sound_outages(frame: pl.DataFrame, now: datetime) -> Imported:
    """The valid rows of `frame`, oldest first; the rest is left out and counted."""
    shaped = conform(frame, OUTAGES, ("node", "at"))
    rows = shaped.frame.with_columns(pl.col("kind").fill_null("drained"), pl.col("cause").fill_null(""))
    left_out, sound = _split(rows, _impossible_outages(now))
    return Imported(sound.sort("at", maintain_order=True), shaped.problems + Problems(left_out=left_out))


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """`frame` as a Parquet file. Raises TableError where the file cannot be written."""
    try:
        frame.write_parquet(path)
    except OSError as error:
        raise TableError(f"{path}: cannot be written: {error}") from error


def read_parquet(path: Path, columns: tuple[str, ...] | None = None) -> pl.DataFrame:
    """The table in `path`, or those of `columns` that it has. Raises TableError where it is not Parquet."""
    try:
        rows = pl.scan_parquet(path)
        if columns is not None:
            rows = rows.select(c for c in rows.collect_schema().names() if c in columns)
        return rows.collect(engine="streaming")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TableError(f"{path}: not a Parquet file: {error}") from error


def _impossible_jobs(now: datetime) -> dict[str, pl.Expr]:
    wrong_clock = pl.any_horizontal(_out_of_range(c, now) for c in ("start_at", "end_at"))
    return {
        "no job id": pl.col("job_id").is_null() | (pl.col("job_id") == ""),
        "no state": pl.col("state").is_null() | (pl.col("state") == ""),
        "a time before 2000 or in the future": wrong_clock,
        "ends before it starts": pl.col("end_at") < pl.col("start_at"),
        "less than no GPU or node": (pl.col("gpus") < 0) | (pl.col("node_count") < 0),
    }


def _doubtful_jobs() -> dict[str, pl.Expr]:
    started = pl.col("start_at").is_not_null()
    listed = pl.col("nodes").list.len()
    return {
        "state is not one of Slurm's": ~pl.col("state").is_in(LIVE_STATES + FINAL_STATES),
        "final state without an end time": pl.col("state").is_in(FINAL_STATES) & pl.col("end_at").is_null(),
        "starts before it was submitted": pl.col("start_at") < pl.col("submit_at"),
        "ran without a node list": started & pl.col("end_at").is_not_null() & (listed.fill_null(0) == 0),
        "node count differs from the node list": (listed > 0) & (listed != pl.col("node_count")),
        "number of GPUs unknown": started & pl.col("gpus").is_null(),
    }


def _impossible_events(now: datetime) -> dict[str, pl.Expr]:
    return {
        "no node": pl.col("node").is_null() | (pl.col("node") == ""),
        "no time": pl.col("at").is_null(),
        "a time before 2000 or in the future": _out_of_range("at", now),
        "kind is not known": ~pl.col("kind").is_in(KINDS),
        "severity is not 1 to 4": ~pl.col("severity").is_between(1, 4) & ~pl.col("kind").is_in(("cleared", "outcome")),
    }


def _impossible_outages(now: datetime) -> dict[str, pl.Expr]:
    return {
        "no node": pl.col("node").is_null() | (pl.col("node") == ""),
        "no time": pl.col("at").is_null(),
        "a time before 2000 or in the future": _out_of_range("at", now),
        "kind is not known": ~pl.col("kind").is_in(OUTAGE_KINDS),
    }


def _out_of_range(column: str, now: datetime) -> pl.Expr:
    # Whole seconds at the epoch are what Slurm writes for "not yet"; the importers have made those null before.
    return ~pl.col(column).is_between(pl.lit(_EARLIEST, dtype=TIME), pl.lit(now + _AHEAD, dtype=TIME))


def _split(frame: pl.DataFrame, faults: Mapping[str, pl.Expr]) -> tuple[dict[str, int], pl.DataFrame]:
    """How many rows each of `faults` puts out (a row counts for the first that fits), and the rows that none does."""
    first = pl.coalesce(pl.when(fault.fill_null(False)).then(pl.lit(kind)) for kind, fault in faults.items())
    kinds = frame.select(first.alias("kind"))["kind"]
    if kinds.null_count() == frame.height:  # the usual case does not copy millions of rows
        return {}, frame
    left_out = dict(kinds.drop_nulls().value_counts().sort("kind").iter_rows())
    return left_out, frame.filter(kinds.is_null())


def numbered(runs: pl.DataFrame) -> pl.DataFrame:
    """Attempts from 1 in order of start, where the source did not number them."""
    if runs["attempt"].null_count() == 0:
        return runs
    started = pl.col("start_at").fill_null(pl.col("submit_at"))
    order = started.rank("ordinal").over("job_id").cast(pl.Int32).fill_null(1)
    return runs.with_columns(pl.col("attempt").fill_null(order))


def _cast(name: str, have: pl.DataType, want: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(want, pl.Datetime) and isinstance(have, pl.Datetime) and have.time_zone is None:
        return column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return column if have == want else column.cast(want, strict=False)


def _added(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {k: one.get(k, 0) + two.get(k, 0) for k in (*one, *(k for k in two if k not in one))}
