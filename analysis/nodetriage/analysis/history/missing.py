"""What a history cannot show because its input lacks it: nothing seen is not nothing wrong."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from nodetriage.analysis.history.history import History
from nodetriage.analysis.imports.sacct import COMMAND

NOT_MEASURED = "not measured"
LOWER_BOUND = "a lower bound: without events of agents only NODE_FAIL and BOOT_FAIL count as failures of the fleet"

# Columns of jobs that are empty in every row, and what is then not measured.
_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "start_at": "run time, and with it every rate",
        "nodes": "which node failed a job: causes and lemons",
        "gpus": "sizes of jobs, r_f, GPU hours",
        "submit_at": "time in the queue",
    }
)


def has_events(history: History) -> bool:
    """Whether agents (or any other source) reported anything, whatever the period."""
    return history.coverage["events"].rows > 0 if history.coverage else history.events.height > 0


def alarms(history: History) -> tuple[str, ...]:
    """One line for each kind of evidence that is missing: what is not measured, and what to do."""
    found = []
    ran = history.jobs.filter(pl.col("state") != "PENDING")
    if not history.jobs.height:
        found.append(f"no jobs: rates, causes and losses are {NOT_MEASURED}; --jobs reads the output of: {COMMAND}")
    elif not has_events(history):
        found.append(
            f"no events of agents: causes, false positives and Xids are {NOT_MEASURED}, and r_f is {LOWER_BOUND};"
            " --events or --database brings them"
        )
    if ran.height:
        empty = [c for c in _COLUMNS if not ran.select((_given(c)).any()).item()]
        found += [f"{c} is empty in every row: {_COLUMNS[c]} is {NOT_MEASURED}; run: {COMMAND}" for c in empty]
    if text := _attempts(history.jobs):
        found.append(text)
    return tuple(found)


def _given(column: str) -> pl.Expr:
    filled = pl.col(column).is_not_null()
    return (filled & (pl.col(column).list.len() > 0)).fill_null(False) if column == "nodes" else filled


def _attempts(jobs: pl.DataFrame) -> str | None:
    """Jobs that were restarted more often than there are earlier attempts: sacct without -D prints the last alone."""
    again = jobs.filter(pl.col("restarts") > 0)
    if again.is_empty():
        return None
    counted = (
        jobs.join(again.select("job_id").unique(), on="job_id", how="semi")
        .group_by("job_id")
        .agg(pl.len().alias("seen"), pl.col("restarts").max())
    )
    short = counted.filter(pl.col("seen") < pl.col("restarts") + 1).height
    if not short:
        return None
    return (
        f"{short:,} of {counted.height:,} requeued jobs have fewer attempts here than Restarts says: failures are"
        f" missing (a dump without -D, or attempts before the period); run: {COMMAND}"
    )
