"""Job history from `sacct -P` text, streamed a block at a time.

`COMMAND` is the command for sacct; docs/history.md gives the reasons.
"""

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from nodetriage.analysis.imports.node_columns import expand_column
from nodetriage.analysis.imports.sacct_lines import BLOCK_BYTES, Header, records
from nodetriage.analysis.tables import JOBS, TIME, Imported, Problems, TableError, empty, sound_jobs
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.slurm.node_list import NO_LIST

COLUMNS = (
    "JobID,User,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,Suspended,NNodes,NodeList,AllocTRES,"
    "Cluster,DerivedExitCode,SubmitLine,JobName"
)
NEWER_COLUMNS = "FailedNode,Restarts"  # sacct 22.05 knows neither
COMMAND = f"TZ=UTC sacct -a -X -D -P --delimiter='|#' -S 2026-01-01 -o {NEWER_COLUMNS},{COLUMNS}"

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
BAD_STEPS = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED", "BOOT_FAIL", "DEADLINE")
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
    """The same from an open file. Raises TableError where it has no header with JobID and State, or no times."""
    held: pl.DataFrame | None = None
    for header, lines, problems in records(source, block_bytes):
        raw = _columns(header, lines)
        if raw.height and not {"start", "end"} & set(raw.columns):
            raise TableError(f"no column Start, End: without times nothing can be counted; run: {COMMAND}")
        raw = raw if held is None else pl.concat([held, raw])
        # The steps of a job follow it; those of a block's last job may be in the next.
        last_job = raw.with_row_index("at").filter(~_is_step())["at"].max()
        cut = last_job if isinstance(last_job, int) else 0
        rows, held = normalise(raw[:cut], zone), raw[cut:]
        yield Imported(rows.frame, problems + rows.problems)
    if held is not None:
        rows = normalise(held, zone)
        yield Imported(rows.frame, rows.problems)


def _is_step() -> pl.Expr:
    return pl.col("jobid").str.contains(".", literal=True)


def normalise(raw: pl.DataFrame, zone: str) -> Imported:
    """Rows of text under Slurm's column names in lower case, as rows of JOBS. Steps are left out and counted."""
    jobs = raw.with_columns(_failed_steps(raw.columns)).filter(~_is_step())
    left_out = {"a step, not a job": raw.height - jobs.height} if jobs.height < raw.height else {}
    kept: dict[str, int] = {}
    have = set(jobs.columns)
    times = [time_of(slurm, zone).alias(ours) for slurm, ours in _TIMES.items() if slurm in have]
    shaped = jobs.select(
        pl.col("jobid").str.strip_chars().alias("job_id"),
        pl.col("state").str.extract(r"^\s*([A-Z_]+)").alias("state"),
        "failed_steps",
        *(pl.col(slurm).replace("", None).alias(ours) for slurm, ours in _TEXTS.items() if slurm in have),
        *times,
        *_numbers(have),
    )
    for slurm, ours in ((s, o) for s, o in _TIMES.items() if s in have):
        written = ~jobs[slurm].str.strip_chars().is_in(_NO_TIME)
        if bad := int((written & shaped[ours].is_null()).sum()):
            kept[f"{slurm} cannot be read"] = bad
    shaped = _with_lists(shaped, jobs, kept)
    shaped = _with_clock_changes(shaped, jobs, kept, zone)
    return Imported(_complete(shaped), Problems(kept, left_out))


def _failed_steps(have: Collection[str]) -> pl.Expr:
    """How many steps of the job ended badly; null where neither steps nor the highest exit code of them are known."""
    bad = _is_step() & pl.col("state").str.strip_chars().str.contains(rf"^(?:{'|'.join(BAD_STEPS)})\b")
    job = (~_is_step()).cum_sum()
    seen = pl.when(_is_step().sum().over(job) > 0).then(bad.sum().over(job)).cast(pl.Int32)
    if "derivedexitcode" not in have:
        return seen.alias("failed_steps")
    code = pl.col("derivedexitcode").str.strip_chars()
    by_code = pl.when(code.str.contains(r"^\d+:\d+$")).then((code != "0:0").cast(pl.Int32))
    return pl.max_horizontal(seen, by_code).alias("failed_steps")


def _columns(header: Header, lines: pl.Series) -> pl.DataFrame:
    wanted = {"jobid", "state", *_TEXTS, *_TIMES, "elapsedraw", "suspended", "nnodes", "allocnodes", "nodelist"}
    wanted |= {"alloctres", "submitline", "restarts", "excnodelist", "failednode", "derivedexitcode"}
    fields = lines.alias("line").to_frame().select(pl.col("line").str.split(header.delimiter, literal=True))
    # A column that was asked for twice is the same twice.
    places = {name: header.names.index(name) for name in header.names if name in wanted}
    # A field is a view into its line; added to nothing it is a text of its own, and the lines can go.
    return fields.select((pl.col("line").list.get(at) + "").alias(name) for name, at in places.items())


def time_of(column: str, zone: str, twice: Literal["earliest", "latest"] = "earliest") -> pl.Expr:
    """ISO without an offset is in `zone`, with an offset as given; digits are Unix seconds.

    `twice`: which of two, where the clock was put back and the hour comes again.
    """
    text = pl.col(column).str.strip_chars()
    local = (
        text.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
        .dt.replace_time_zone(zone, ambiguous=twice, non_existent="null")
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
    if "failednode" in have:
        failed = pl.col("failednode").str.strip_chars()
        found.append(pl.when(~failed.is_in(NO_LIST)).then(failed).alias("failed_node"))
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


def _with_clock_changes(shaped: pl.DataFrame, jobs: pl.DataFrame, kept: dict[str, int], zone: str) -> pl.DataFrame:
    """Local times repeat an hour in autumn; Elapsed counts true seconds and decides which each time was."""
    if not {"elapsedraw", "suspended"} <= set(jobs.columns) or not {"start_at", "end_at"} <= set(shaped.columns):
        return shaped
    begin, end = jobs.select(time_of("start", zone, "latest")), jobs.select(time_of("end", zone, "latest"))
    rows = shaped.with_columns(
        begin.to_series().alias("late_start"),
        end.to_series().alias("late_end"),
        jobs["elapsedraw"].cast(pl.Int64, strict=False).alias("elapsed_s"),
        jobs["suspended"].is_in(("", "00:00:00")).alias("never_suspended"),
    )
    known = pl.col("never_suspended") & pl.col("end_at").is_not_null()
    fits = {
        (start, end): known & ((pl.col(end) - pl.col(start)).dt.total_seconds() == pl.col("elapsed_s"))
        for start, end in (("start_at", "end_at"), ("late_start", "end_at"), ("start_at", "late_end"), _BOTH_LATE)
    }
    # The first pair that fits; without one both stay as they were read.
    chosen = pl.coalesce(pl.when(fit.fill_null(False)).then(pl.lit(i)) for i, fit in enumerate(fits.values()))
    rows = rows.with_columns(chosen.fill_null(0).alias("pair"))
    for what, pairs in (("a start", (1, 3)), ("an end", (2, 3))):
        if n := int(rows["pair"].is_in(pairs).sum()):
            kept[f"{what} corrected by an hour (clock change)"] = n
    return rows.with_columns(
        pl.when(pl.col("pair").is_in((1, 3))).then("late_start").otherwise("start_at").alias("start_at"),
        pl.when(pl.col("pair").is_in((2, 3))).then("late_end").otherwise("end_at").alias("end_at"),
    ).drop("late_start", "late_end", "elapsed_s", "never_suspended", "pair")


_BOTH_LATE = ("late_start", "late_end")


def _complete(shaped: pl.DataFrame) -> pl.DataFrame:
    return shaped.select(
        pl.col(name).cast(dtype) if name in shaped.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in JOBS.items()
    )
