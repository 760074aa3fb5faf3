"""A history: jobs and events of a period, from files or the controller's store, and what was wrong with them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import polars as pl

from nodetriage.analysis.history.exposure import Window, ran, seconds
from nodetriage.analysis.imports import event_table, sacct, sacct_json
from nodetriage.analysis.imports import files as open_files
from nodetriage.analysis.imports.csv_tables import read_csv
from nodetriage.analysis.imports.joined import joined_jobs
from nodetriage.analysis.tables import (
    EVENTS,
    JOBS,
    OUTAGES,
    TIME,
    Imported,
    Problems,
    Schema,
    TableError,
    empty,
    read_parquet,
    sound_jobs,
)

# Events from so long before the period and after it still matter to its jobs: windows, faults that were open.
_LEAD = timedelta(days=1)
_LAG = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Span:
    """How many rows a table has in all, whatever the period, and the times of the first and the last."""

    rows: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class History:
    """What touched the period [since, until): its jobs, and the events around it.

    A job that ran on past the period is one that runs at its end, whatever became of it later: RUNNING, without an
    end. Attempts of one job are rows of their own; `run` numbers all rows from 0.
    """

    jobs: pl.DataFrame
    events: pl.DataFrame
    since: datetime
    until: datetime
    outages: pl.DataFrame = field(default_factory=lambda: empty(OUTAGES))  # all that are known, whatever the period
    problems: Mapping[str, Problems] = field(default_factory=dict)  # by source
    jobs_until: datetime | None = None  # the end of what the source of jobs knows; None: there are no jobs
    coverage: Mapping[str, Span] = field(default_factory=dict)  # by kind: jobs, events, outages

    @property
    def window(self) -> Window:
        """The period as every count of exposure takes it."""
        return Window(self.since, self.until, self.jobs_until)

    @property
    def days(self) -> float:
        return (self.until - self.since) / timedelta(days=1)


Files: TypeAlias = Path | Sequence[Path] | None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a history comes from; None: there is no such source. Of each kind of file there may be several."""

    jobs: Files = None
    events: Files = None
    outages: Files = None
    database: str | None = None
    zone: str = "UTC"  # the time zone of sacct's times


def load(
    sources: Sources,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> History:
    """Reads what `sources` names; without any it is an empty history. Raises TableError."""
    jobs = _files(sources.jobs, "jobs", lambda path: read_jobs(path, now, sources.zone, progress), progress)
    events = _files(sources.events, "events", lambda path: event_table.read_events(path, now), progress)
    outages = _files(
        sources.outages, "outages", lambda path: event_table.read_outages(path, now, sources.zone), progress
    )
    if sources.database is not None:
        progress("reading events from the store")
        first, last = (since - _LEAD if since else None), (until + _LAG if until else None)
        store = "the controller's store"
        events[store], outages[store] = event_table.read_store(sources.database, now, first, last)
    known = joined_jobs([i.frame for i in jobs.values()])
    read = of(known.frame, _together(events, EVENTS), now, since, until, _together(outages, OUTAGES))
    problems: dict[str, Problems] = {}
    for source, found in [*jobs.items(), *events.items(), *outages.items()]:
        problems[source] = problems.get(source, Problems()) + found.problems
    if known.problems != Problems():
        problems["all jobs together"] = known.problems
    return replace(read, problems=problems)


def _files(
    files: Files, kind: str, reader: Callable[[Path], Imported], progress: Callable[[str], None]
) -> dict[str, Imported]:
    paths = [files] if isinstance(files, Path) else list(files or ())
    read = {}
    for path in paths:
        progress(f"reading {kind} from {path}")
        read[str(path)] = open_files.read(path, reader)
    return read


def of(
    jobs: pl.DataFrame,
    events: pl.DataFrame,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    outages: pl.DataFrame | None = None,
) -> History:
    """A history of validated tables. Without bounds the period is that of the jobs; without jobs, of all else.

    A list of jobs ends with the last that it says of any job; events that come later say nothing about what ran.
    """
    outages = empty(OUTAGES) if outages is None else outages
    coverage = {
        "jobs": _span(jobs, "submit_at", "start_at", "end_at"),
        "events": _span(events, "at"),
        "outages": _span(outages, "at"),
    }
    first, last = _extent(jobs, coverage, now)
    since, until = since or first, until or last
    until = max(since, until)
    known_until = coverage["jobs"].last
    start, end = pl.lit(since, dtype=TIME), pl.lit(until, dtype=TIME)
    around = events.filter(pl.col("at").is_between(pl.lit(since - _LEAD, dtype=TIME), pl.lit(until + _LAG, dtype=TIME)))
    numbered = _touching(jobs, start, end).drop("run", strict=False).with_row_index("run")
    ends = None if known_until is None else min(known_until, now) + timedelta(microseconds=1)
    return History(numbered, around, since, until, outages, jobs_until=ends, coverage=coverage)


def _touching(jobs: pl.DataFrame, start: pl.Expr, end: pl.Expr) -> pl.DataFrame:
    """The jobs of the period as they stood at its end."""
    begun = (pl.col("start_at") < end) & (pl.col("end_at").is_null() | (pl.col("end_at") >= start))
    never_began = pl.col("start_at").is_null() & pl.col("end_at").is_between(start, end, closed="left")
    still = (pl.col("end_at") >= end).fill_null(False)
    within = jobs.filter(begun.fill_null(False) | never_began.fill_null(False))
    if not within.select(still.any()).item():
        return within
    return within.with_columns(
        pl.when(still).then(pl.lit("RUNNING")).otherwise("state").alias("state"),
        *(pl.when(~still).then(c).alias(c) for c in ("exit_code", "preempted_by", "end_at")),
    )


def _together(read: Mapping[str, Imported], schema: Schema) -> pl.DataFrame:
    frames = [i.frame for i in read.values()]
    if len(frames) < 2:
        return frames[0] if frames else empty(schema)
    return pl.concat(frames).sort("at", maintain_order=True)


def read_jobs(
    path: Path, now: datetime, zone: str = "UTC", progress: Callable[[str], None] = lambda text: None
) -> Imported:
    """Jobs from Parquet, `sacct --json`, `sacct -P` or CSV: the file's first bytes say which. Raises TableError."""
    try:
        with path.open("rb") as source:
            head = source.read(4096)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    if head.startswith(b"PAR1"):
        return sound_jobs(read_parquet(path, tuple(JOBS)), now)
    if head.lstrip().startswith(b"{"):
        return sacct_json.read_sacct_json(path, now)
    line = head.lstrip().split(b"\n", 1)[0].lower()
    if not line or (b"jobid" in line and b"state" in line):
        return sacct.read_sacct(path, now, zone, lambda rows: progress(f"{rows:,} jobs read"))
    try:
        read = read_csv(path, JOBS)
        jobs = sound_jobs(read.frame, now)
    except TableError as error:
        raise TableError(f"{path}: neither Parquet, sacct -P, sacct --json nor CSV: {error}") from error
    return Imported(jobs.frame, read.problems + jobs.problems)


def started(history: History) -> pl.DataFrame:
    """The runs that had nodes in the period.

    `run_s`: seconds of the whole run up to the period's end, from which a loss at its end follows. `period_s` and
    `gpu_h`: seconds and GPU hours within the period, which every share and sum of time counts.
    """
    return scan_started(history).collect()


def scan_started(history: History) -> pl.LazyFrame:
    """The same for a caller that needs few of its columns: those of millions of rows are not all copied."""
    run_s = (pl.col("to_at") - pl.col("start_at")).dt.total_microseconds() / 1e6
    return (
        ran(history.jobs.lazy(), history.window)
        .with_columns(run_s.alias("run_s"), seconds().alias("period_s"))
        .with_columns((pl.col("period_s") / 3600 * pl.col("gpus").fill_null(0)).alias("gpu_h"))
    )


def _span(rows: pl.DataFrame, *columns: str) -> Span:
    firsts, lasts = [rows[c].min() for c in columns], [rows[c].max() for c in columns]
    first = min((t for t in firsts if isinstance(t, datetime)), default=None)
    return Span(rows.height, first, max((t for t in lasts if isinstance(t, datetime)), default=None))


def _extent(jobs: pl.DataFrame, coverage: Mapping[str, Span], now: datetime) -> tuple[datetime, datetime]:
    if jobs.height:
        began = _span(jobs, "start_at", "end_at").first
        firsts, lasts = [began], [coverage["jobs"].last]
    else:
        firsts, lasts = [s.first for s in coverage.values()], [s.last for s in coverage.values()]
    first = min((t for t in firsts if t is not None), default=now)
    last = max((min(t, now) for t in lasts if t is not None), default=None)
    # The end of a period does not belong to it.
    return first, now if last is None else last + timedelta(microseconds=1)
