"""Preemptions that failures cause: a job fails, is requeued, and pushes out others, which may push out others again."""

from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from nodetriage.analysis.history.attribution import Attributed
from nodetriage.analysis.history.history import History, started

_DEEPEST = 10  # preemptions in a row that are followed back; a deeper chain is a cycle


@dataclass(frozen=True, slots=True)
class Cascades:
    """`guaranteed_h`: a preemption sooner violates the policy. `grace_s`: how soon a preemptor starts then."""

    lost_min: float = 30.0  # of work that a stopped run loses at most: half of hourly checkpoints
    guaranteed_h: float = 2.0
    grace_s: float = 120.0
    infer: bool = True  # where the scheduler did not say who preempted, look who started on the nodes

    def __post_init__(self) -> None:
        if min(self.lost_min, self.guaranteed_h, self.grace_s) < 0:
            raise ValueError("lost_min, guaranteed_h, grace_s: expected 0 or more")


@dataclass(frozen=True, slots=True)
class Linked:
    """`links`: one row for each preempted run: run, job_id, attempt, gpus, run_s, end_at, preempted_by, inferred,

    lost_gpu_h, too_soon, root (the job id whose failure set it off; null: a preemption without a failure), depth.
    """

    links: pl.DataFrame
    settings: Cascades


def linked(history: History, attributed: Attributed, settings: Cascades | None = None) -> Linked:
    """Every preempted run with its preemptor and, where that one had failed before, the failure's job."""
    settings = settings or Cascades()
    runs = started(history)
    stopped = runs.filter((pl.col("state") == "PREEMPTED") & pl.col("end_at").is_not_null())
    links = _with_preemptor(stopped, runs, settings).select(
        "run",
        "job_id",
        "attempt",
        "gpus",
        "run_s",
        "end_at",
        "preempted_by",
        "inferred",
        lost_gpu_h(settings.lost_min),
        (pl.col("run_s") < settings.guaranteed_h * 3600).alias("too_soon"),
    )
    return Linked(_rooted(links, runs, attributed, settings), settings)


def lost_gpu_h(lost_min: float) -> pl.Expr:
    """min(run time, `lost_min`) x GPUs, in GPU hours, of rows with run_s and gpus."""
    return (pl.min_horizontal(pl.col("run_s"), pl.lit(lost_min * 60.0)) / 3600 * pl.col("gpus").fill_null(0)).alias(
        "lost_gpu_h"
    )


def top(found: Linked, attributed: Attributed, most: int = 20) -> pl.DataFrame:
    """The costliest cascades: job_id, gpus, failures, preemptions, GPUs pushed out, GPU hours lost, how deep."""
    cascades = (
        found.links.filter(pl.col("root").is_not_null())
        .group_by(pl.col("root").alias("job_id"))
        .agg(
            pl.len().alias("preemptions"),
            pl.col("gpus").sum().alias("gpus_preempted"),
            pl.col("lost_gpu_h").sum(),
            pl.col("depth").max().alias("deepest"),
        )
    )
    own = attributed.infrastructure.group_by("job_id").agg(pl.col("gpus").max(), pl.len().alias("failures"))
    return (
        cascades.join(own, on="job_id", how="left")
        .with_columns((pl.col("preemptions") / pl.col("failures")).alias("preemptions_per_failure"))
        .select(
            "job_id",
            "gpus",
            "failures",
            "preemptions",
            "preemptions_per_failure",
            "gpus_preempted",
            "lost_gpu_h",
            "deepest",
        )
        .sort(["lost_gpu_h", "job_id"], descending=[True, False])
        .head(most)
    )


def _with_preemptor(stopped: pl.DataFrame, runs: pl.DataFrame, settings: Cascades) -> pl.DataFrame:
    """Adds `inferred`, and a preemptor where the scheduler named none and only one is possible."""
    stopped = stopped.with_columns(pl.lit(False).alias("inferred"))
    silent = stopped.filter(pl.col("preempted_by").is_null())
    if silent.is_empty() or not settings.infer:
        return stopped
    named = pl.col("preempted_by").is_not_null()
    guessed = stopped.join(_guesses(silent, runs, settings), on="run", how="left", maintain_order="left")
    return guessed.with_columns(
        pl.col("preempted_by").fill_null(pl.col("guess")), (~named & pl.col("guess").is_not_null()).alias("inferred")
    )


def _guesses(silent: pl.DataFrame, runs: pl.DataFrame, settings: Cascades) -> pl.DataFrame:
    """run, guess: the largest job of another QOS or partition that took one of the run's nodes as soon as it ended."""
    freed = silent.select("run", "job_id", "qos", "partition", "end_at", pl.col("nodes").alias("node"))
    freed = freed.explode("node", empty_as_null=False)
    taken = runs.select(pl.col("job_id").alias("guess"), *_THEIRS, "gpus", "start_at", "nodes")
    taken = taken.explode("nodes", empty_as_null=False).rename({"nodes": "node"})
    near = taken.join(freed.select("node").unique(), on="node", how="semi").sort("start_at")
    met = (
        freed.sort("end_at")
        .join_asof(
            near,
            left_on="end_at",
            right_on="start_at",
            by="node",
            strategy="forward",
            tolerance=timedelta(seconds=settings.grace_s),
            check_sortedness=False,
        )
        .filter(pl.col("guess") != pl.col("job_id"))
    )
    # Preemption is between QOS or between partitions; a job of the same ones only took the free nodes.
    by_qos = pl.col("its_qos") != pl.col("qos")
    return (
        met.filter(by_qos.fill_null(False) | _higher(met))
        .sort(["run", "gpus", "guess"], descending=[False, True, False])
        .unique("run", keep="first", maintain_order=True)
        .select("run", "guess")
    )


_THEIRS = (pl.col("qos").alias("its_qos"), pl.col("partition").alias("its_partition"))


def _higher(met: pl.DataFrame) -> pl.Series:
    """Where the job that came is of a partition that takes nodes from the other more often than it loses them.

    The accounting does not keep the priorities of partitions (PriorityTier); who takes from whom shows them.
    """
    pairs = (
        met.filter(pl.col("partition") != pl.col("its_partition")).group_by("partition", "its_partition").len("taken")
    )
    reverse = pairs.select(
        pl.col("its_partition").alias("partition"), pl.col("partition").alias("its_partition"), lost="taken"
    )
    ranked = pairs.join(reverse, on=["partition", "its_partition"], how="left").with_columns(
        (pl.col("taken") > pl.col("lost").fill_null(0)).alias("higher")
    )
    return met.join(ranked, on=["partition", "its_partition"], how="left", maintain_order="left")["higher"].fill_null(
        False
    )


def _rooted(links: pl.DataFrame, runs: pl.DataFrame, attributed: Attributed, settings: Cascades) -> pl.DataFrame:
    """Adds root and depth: back from the preempted run to what made its preemptor start again."""
    causes = _reasons(links, runs, attributed, settings)
    rooted = links.join(causes, on="run", how="left", maintain_order="left")
    root = pl.when(pl.col("failed_before")).then("preempted_by")
    rooted = rooted.with_columns(root.alias("root"), pl.when(root.is_not_null()).then(1).alias("depth"))
    for _ in range(_DEEPEST):
        parents = rooted.select(
            pl.col("run").alias("pushed_by"), pl.col("root").alias("up"), pl.col("depth").alias("up_depth")
        )
        step = rooted.join(parents, on="pushed_by", how="left", maintain_order="left")
        gained = step["root"].is_null() & step["up"].is_not_null()
        if not gained.any():
            break
        rooted = step.with_columns(
            pl.col("root").fill_null(pl.col("up")), pl.col("depth").fill_null(pl.col("up_depth") + 1)
        ).drop("up", "up_depth")
    return rooted.drop("failed_before", "pushed_by")


def _reasons(links: pl.DataFrame, runs: pl.DataFrame, attributed: Attributed, settings: Cascades) -> pl.DataFrame:
    """For each preempted run: whether its preemptor's last attempt had failed, or which preempted run that one was."""
    jobs = links.select(pl.col("preempted_by").alias("job_id")).drop_nulls().unique()
    attempts = runs.select("run", "job_id", "start_at", "state").join(jobs, on="job_id", how="semi")
    attempts = attempts.sort("job_id", "start_at")
    bad = attributed.infrastructure.select("run", pl.lit(True).alias("bad"))
    attempts = attempts.join(bad, on="run", how="left", maintain_order="left").with_columns(
        pl.col("bad").shift(1).over("job_id").fill_null(False).alias("failed_before"),
        pl.when(pl.col("state").shift(1).over("job_id") == "PREEMPTED")
        .then(pl.col("run").shift(1).over("job_id"))
        .alias("pushed_by"),
    )
    asked = links.filter(pl.col("preempted_by").is_not_null()).select(
        "run", "end_at", pl.col("preempted_by").alias("job_id")
    )
    # The attempt that took the nodes began about when they became free.
    begun = attempts.select("job_id", "start_at", "failed_before", "pushed_by").sort("start_at")
    return (
        asked.sort("end_at")
        .join_asof(
            begun,
            left_on="end_at",
            right_on="start_at",
            by="job_id",
            strategy="nearest",
            tolerance=timedelta(seconds=max(settings.grace_s, 1.0)),
            check_sortedness=False,
        )
        .select("run", pl.col("failed_before").fill_null(False), "pushed_by")
    )
