"""Whose a job id is: Slurm gives numbers anew after a reset, and each cluster has its own."""

import polars as pl

SHARED_ID = "a job id that several clusters or users had"


def told_apart(runs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """`runs` with the cluster or the user as part of each id that two of them had, and how many rows that concerns.

    A requeued run is of its job whoever its user is; so only first runs tell that an id had two owners.
    """
    first = runs.lazy().filter(pl.col("restarts").fill_null(0) == 0)
    count = 0
    for owner in ("cluster", "user"):
        owned = first.select("job_id", owner).filter(pl.col(owner).is_not_null()).unique()
        shared = owned.group_by("job_id").len().filter(pl.col("len") > 1).select("job_id").collect()
        if shared.is_empty():
            continue
        here = pl.col("job_id").is_in(shared["job_id"].implode()) & pl.col(owner).is_not_null()
        count += int(runs.select(here.sum()).item())
        named = pl.when(here).then(pl.col("job_id") + "@" + pl.col(owner)).otherwise("job_id")
        runs = runs.with_columns(named.alias("job_id"))
        first = runs.lazy().filter(pl.col("restarts").fill_null(0) == 0)
    return runs, count
