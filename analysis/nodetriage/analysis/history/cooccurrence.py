"""What fails together, and what each check adds: over the causes that attribution kept."""

import polars as pl

from nodetriage.analysis.history.attribution import INFRASTRUCTURE, Attributed


def matrix(attributed: Attributed) -> pl.DataFrame:
    """category, with_category, jobs (that had a fault of the first), both, share of them that also had the second.

    The diagonal is in it: there `both` are all jobs, so no pair can exceed its single, nor a triple its pair.
    """
    seen = _seen(attributed, "category")
    totals = seen.group_by("category").agg(pl.len().alias("jobs"))
    pairs = (
        seen.join(seen.rename({"category": "with_category"}), on="run")
        .group_by("category", "with_category")
        .len("both")
    )
    return (
        pairs.join(totals, on="category")
        .select("category", "with_category", "jobs", "both", (pl.col("both") / pl.col("jobs")).alias("share"))
        .sort("category", "with_category")
    )


def combinations(attributed: Attributed) -> pl.DataFrame:
    """categories (all that a job had, in order), jobs, share of the attributed jobs; the most frequent first."""
    sets = (
        _seen(attributed, "category").group_by("run").agg(pl.col("category").sort().str.join(" + ").alias("categories"))
    )
    counts = sets.group_by("categories").len("jobs").sort(["jobs", "categories"], descending=[True, False])
    return counts.with_columns((pl.col("jobs") / max(sets.height, 1)).alias("share"))


def like_priority_share(attributed: Attributed) -> float | None:
    """The share of attributed jobs whose highest severity two or more checks reported; None where there is no job."""
    failed = attributed.causes.filter("failed")
    highest = failed.filter(pl.col("severity") == pl.col("severity").max().over("run"))
    checks = highest.group_by("run").agg(pl.col("check").n_unique().alias("checks"))
    return float((checks["checks"] >= 2).mean() or 0.0) if checks.height else None  # type: ignore[arg-type]


def marginal(attributed: Attributed) -> pl.DataFrame:
    """check, jobs (attributed, where it failed), only (no other check failed), share_only (of all attributed jobs).

    `only` are the jobs that have no other evidence: without the check they would have none.
    """
    seen = _seen(attributed, "check").with_columns(pl.len().over("run").alias("checks"))
    total = max(seen["run"].n_unique(), 1)
    return (
        seen.group_by("check")
        .agg(pl.len().alias("jobs"), (pl.col("checks") == 1).sum().alias("only"))
        .with_columns((pl.col("only") / total).alias("share_only"))
        .sort(["only", "jobs", "check"], descending=[True, True, False])
    )


def _seen(attributed: Attributed, column: str) -> pl.DataFrame:
    runs = attributed.ends.filter(pl.col("verdict") == INFRASTRUCTURE).select("run")
    return attributed.causes.filter("failed").join(runs, on="run", how="semi").select("run", column).unique()
