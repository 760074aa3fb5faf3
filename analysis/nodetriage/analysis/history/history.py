"""A history: jobs and events of a period, from files or the controller's store, and what was wrong with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from nodetriage.analysis.imports import event_table, sacct, sacct_json
from nodetriage.analysis.imports.csv_tables import read_csv
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
class History:
    """Jobs that ended in [since, until) or ran at its end, and the events around it.

    Attempts of one job are rows of their own; `run` numbers all rows from 0.
    """

    jobs: pl.DataFrame
    events: pl.DataFrame
    since: datetime
    until: datetime
    outages: pl.DataFrame = field(default_factory=lambda: empty(OUTAGES))  # all that are known, whatever the period
    problems: Mapping[str, Problems] = field(default_factory=dict)  # by source

    @property
    def days(self) -> float:
        return (self.until - self.since) / timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a history comes from; None: there is no such source."""

    jobs: Path | None = None
    events: Path | None = None
    outages: Path | None = None
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
    jobs: dict[str, Imported] = {}
    events: dict[str, Imported] = {}
    outages: dict[str, Imported] = {}
    if sources.jobs is not None:
        progress(f"reading jobs from {sources.jobs}")
        jobs[str(sources.jobs)] = read_jobs(sources.jobs, now, sources.zone, progress)
    if sources.events is not None:
        progress(f"reading events from {sources.events}")
        events[str(sources.events)] = event_table.read_events(sources.events, now)
    if sources.outages is not None:
        outages[str(sources.outages)] = event_table.read_outages(sources.outages, now)
    if sources.database is not None:
        progress("reading events from the store")
        first, last = (since - _LEAD if since else None), (until + _LAG if until else None)
        store = "the controller's store"
        events[store], outages[store] = event_table.read_store(sources.database, now, first, last)
    read = of(_together(jobs, JOBS), _together(events, EVENTS), now, since, until, _together(outages, OUTAGES))
    problems: dict[str, Problems] = {}
    for source, found in [*jobs.items(), *events.items(), *outages.items()]:
        problems[source] = problems.get(source, Problems()) + found.problems
    return replace(read, problems=problems)


def of(
    jobs: pl.DataFrame,
    events: pl.DataFrame,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    outages: pl.DataFrame | None = None,
) -> History:
    """A history of validated tables. Without bounds the period is from the first start or event to the last."""
    first, last = _extent(jobs, events, now)
    since, until = since or first, until or last
    start, end = pl.lit(since, dtype=TIME), pl.lit(until, dtype=TIME)
    lives = pl.col("end_at").is_null() & (pl.col("start_at") < end)
    within = jobs.filter(pl.col("end_at").is_between(start, end, closed="left") | lives)
    around = events.filter(pl.col("at").is_between(pl.lit(since - _LEAD, dtype=TIME), pl.lit(until + _LAG, dtype=TIME)))
    numbered = within.drop("run", strict=False).with_row_index("run")
    return History(numbered, around, since, until, empty(OUTAGES) if outages is None else outages)


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


def started(jobs: pl.DataFrame, until: datetime) -> pl.DataFrame:
    """The runs that had nodes, with `run_s` (seconds, up to `until` where still running) and `gpu_h` (GPU hours)."""
    end = pl.col("end_at").fill_null(pl.lit(until, dtype=TIME))
    run_s = (end - pl.col("start_at")).dt.total_microseconds() / 1e6
    ended = pl.col("end_at").is_not_null() | pl.col("state").is_in(("RUNNING", "COMPLETING", "SUSPENDED", "RESIZING"))
    return (
        jobs.filter(pl.col("start_at").is_not_null() & ended)
        .with_columns(run_s.clip(lower_bound=0).alias("run_s"))
        .with_columns((pl.col("run_s") / 3600 * pl.col("gpus").fill_null(0)).alias("gpu_h"))
    )


def _extent(jobs: pl.DataFrame, events: pl.DataFrame, now: datetime) -> tuple[datetime, datetime]:
    times = [jobs["start_at"].min(), jobs["end_at"].min(), events["at"].min()]
    first = min((t for t in times if isinstance(t, datetime)), default=now)
    ends = [jobs["end_at"].max(), jobs["start_at"].max(), events["at"].max()]
    last = max((t for t in ends if isinstance(t, datetime)), default=None)
    # The end of a period does not belong to it.
    return first, now if last is None else last + timedelta(microseconds=1)
