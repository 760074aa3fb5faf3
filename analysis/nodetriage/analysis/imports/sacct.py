"""Job history from `sacct -P` text, streamed a block at a time.

The command for sacct (docs/history.md gives the reasons): TZ=UTC sacct -a -D -P --delimiter='|#' -S ... -o COLUMNS
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from nodetriage.analysis.imports.node_columns import expand_column
from nodetriage.analysis.imports.sacct_lines import BLOCK_BYTES, Header, records
from nodetriage.analysis.tables import JOBS, TIME, Imported, Problems, TableError, empty, sound_jobs
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.slurm.node_list import NO_LIST

COLUMNS = (
    "JobID,User,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,Suspended,NNodes,NodeList,"
    "AllocTRES,SubmitLine,JobName"
)

# Slurm's name -> ours, where the text is the value.
_TEXTS = {
    "cluster": "cluster",
    "jobname": "name",
    "user": "user",
    "partition": "partition",
    "qos": "qos",
    "exitcode": "exit_code",
}
_TIMES = {"submit": "submit_at", "eligible": "eligible_at", "start": "start_at", "end": "end_at"}
_NO_TIME = ("", "Unknown", "None", "N/A", "NONE", "0")

_EXCLUDED = r"(?:--exclude(?:=|\s+)|(?:^|\s)-x\s*)(\S+)"


def read_sacct(
    path: Path, now: datetime, zone: str = "UTC", progress: Callable[[int], None] = lambda rows: None
) -> Imported:
    """The jobs in a file of `sacct -P`; `zone` is the time zone in which sacct wrote (its TZ).

    It calls `progress` with the number of records read. Raises TableError where the file cannot be read or has no
    header with JobID and State.
    """
    frames, problems, read = [], Problems(), 0
    for batch in batches(path, zone):
        frames.append(batch.frame)
        problems += batch.problems
        read += batch.frame.height
        progress(read)
    jobs = sound_jobs(pl.concat(frames) if frames else empty(JOBS), now)
    return Imported(jobs.frame, problems + jobs.problems)


def check_zone(zone: str) -> None:
    """Raises ConfigError where there is no such time zone."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"--timezone: expected a name such as Europe/Berlin, got {zone!r}") from error


def batches(path: Path, zone: str = "UTC") -> Iterator[Imported]:
    """The records of `path` as rows of JOBS, a block at a time, not yet validated. Raises TableError."""
    try:
        with path.open("rb") as source:
            yield from rows_of(source, zone)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    except TableError as error:
        raise TableError(f"{path}: {error}") from error


def rows_of(source: BinaryIO, zone: str = "UTC", block_bytes: int = BLOCK_BYTES) -> Iterator[Imported]:
    """The same from an open file. Raises TableError where it has no header with JobID and State."""
    for header, lines, problems in records(source, block_bytes):
        rows = normalise(_columns(header, lines), zone)
        yield Imported(rows.frame, problems + rows.problems)


def normalise(raw: pl.DataFrame, zone: str) -> Imported:
    """Rows of text under Slurm's column names in lower case, as rows of JOBS. Steps are left out and counted."""
    jobs = raw.filter(~pl.col("jobid").str.contains(".", literal=True))
    left_out = {"a step, not a job": raw.height - jobs.height} if jobs.height < raw.height else {}
    kept: dict[str, int] = {}
    have = set(jobs.columns)
    times = [_time(slurm, zone).alias(ours) for slurm, ours in _TIMES.items() if slurm in have]
    shaped = jobs.select(
        pl.col("jobid").str.strip_chars().alias("job_id"),
        pl.col("state").str.extract(r"^\s*([A-Z_]+)").alias("state"),
        *(pl.col(slurm).replace("", None).alias(ours) for slurm, ours in _TEXTS.items() if slurm in have),
        *times,
        *_numbers(have),
    )
    for slurm, ours in ((s, o) for s, o in _TIMES.items() if s in have):
        written = ~jobs[slurm].str.strip_chars().is_in(_NO_TIME)
        if bad := int((written & shaped[ours].is_null()).sum()):
            kept[f"{slurm} cannot be read"] = bad
    shaped = _with_lists(shaped, jobs, kept)
    shaped = _with_clock_changes(shaped, jobs, kept)
    return Imported(_complete(shaped), Problems(kept, left_out))


def _columns(header: Header, lines: pl.Series) -> pl.DataFrame:
    wanted = {"jobid", "state", *_TEXTS, *_TIMES, "elapsedraw", "suspended", "nnodes", "allocnodes", "nodelist"}
    wanted |= {"alloctres", "submitline", "restarts", "excnodelist"}
    fields = lines.alias("line").to_frame().select(pl.col("line").str.split(header.delimiter, literal=True))
    # A column that was asked for twice is the same twice.
    places = {name: header.names.index(name) for name in header.names if name in wanted}
    # A field is a view into its line; added to nothing it is a text of its own, and the lines can go.
    return fields.select((pl.col("line").list.get(at) + "").alias(name) for name, at in places.items())


def _time(column: str, zone: str) -> pl.Expr:
    """ISO without an offset is in `zone`, with an offset as given; digits are Unix seconds."""
    text = pl.col(column).str.strip_chars()
    local = (
        text.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
        .dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        .dt.convert_time_zone("UTC")
    )
    offset = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%z", time_unit="us", strict=False)
    epoch = pl.from_epoch(text.cast(pl.Int64, strict=False), time_unit="s").cast(pl.Datetime("us"))
    seconds = pl.when(text != "0").then(epoch.dt.replace_time_zone("UTC"))
    return pl.coalesce(local, offset.cast(TIME), seconds).cast(TIME)


def _numbers(have: set[str]) -> list[pl.Expr]:
    found = []
    if count := next((c for c in ("nnodes", "allocnodes") if c in have), None):
        found.append(pl.col(count).cast(pl.Int32, strict=False).alias("node_count"))
    if "restarts" in have:
        found.append(pl.col("restarts").cast(pl.Int32, strict=False))
    if "alloctres" in have:
        tres = pl.col("alloctres")
        untyped = tres.str.extract(r"gres/gpu=(\d+)").cast(pl.Int32)
        typed = tres.str.extract_all(r"gres/gpu:[^=,]+=\d+").list.eval(
            pl.element().str.extract(r"=(\d+)$").cast(pl.Int32)
        )
        # A job that never started has no allocation.
        found.append(pl.when(tres != "").then(untyped.fill_null(typed.list.sum())).alias("gpus"))
    return found


def _with_lists(shaped: pl.DataFrame, jobs: pl.DataFrame, kept: dict[str, int]) -> pl.DataFrame:
    columns = []
    if "nodelist" in jobs.columns:
        nodes, bad = expand_column(jobs["nodelist"])
        columns.append(nodes.alias("nodes"))
        if bad:
            kept["a node list that cannot be expanded"] = bad
    excluded = None
    if "excnodelist" in jobs.columns:
        excluded = jobs["excnodelist"]
    elif "submitline" in jobs.columns:
        excluded = jobs.select(pl.col("submitline").str.extract(_EXCLUDED)).to_series()
    if excluded is not None:
        # What a user typed may name a file or a hostlist function: no list then.
        names, _ = expand_column(excluded.replace(list(NO_LIST), None))
        columns.append(names.alias("excluded_nodes"))
    return shaped.with_columns(columns)


def _with_clock_changes(shaped: pl.DataFrame, jobs: pl.DataFrame, kept: dict[str, int]) -> pl.DataFrame:
    """Local times repeat an hour in autumn; Elapsed counts true seconds and decides which of the two an end was."""
    if not {"elapsedraw", "suspended"} <= set(jobs.columns) or not {"start_at", "end_at"} <= set(shaped.columns):
        return shaped
    elapsed = pl.duration(seconds=pl.col("elapsed_s"))
    off = (pl.col("end_at") - pl.col("start_at") - elapsed).dt.total_seconds().abs() == 3600
    rows = shaped.with_columns(
        jobs["elapsedraw"].cast(pl.Int64, strict=False).alias("elapsed_s"),
        jobs["suspended"].is_in(("", "00:00:00")).alias("never_suspended"),
    ).with_columns((off & pl.col("never_suspended")).fill_null(False).alias("off"))
    if n := int(rows["off"].sum()):
        kept["an end corrected by an hour (clock change)"] = n
    end = pl.when("off").then(pl.col("start_at") + elapsed).otherwise(pl.col("end_at")).alias("end_at")
    return rows.with_columns(end).drop("elapsed_s", "never_suspended", "off")


def _complete(shaped: pl.DataFrame) -> pl.DataFrame:
    return shaped.select(
        pl.col(name).cast(dtype) if name in shaped.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in JOBS.items()
    )
