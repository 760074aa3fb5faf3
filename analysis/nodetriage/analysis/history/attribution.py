"""Which failure ended which job: checks that failed on the job's own nodes around its end.

Rules (docs/history.md says why): the window is anchored at the job's end, both ends inclusive; FAILED without a failed
check is never infrastructure; NODE_FAIL without one is a category of its own; all causes are kept, the primary one is
the nearest to the cause by the taxonomy, the earliest among equals; a node is blamed for what it shows alone.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import polars as pl

from nodetriage.analysis.history import evidence, fault_table
from nodetriage.analysis.history.history import History, started
from nodetriage.checks.model import Severity

INFRASTRUCTURE = "infrastructure"
UNATTRIBUTED_NODE_FAIL = "unattributed NODE_FAIL"
USER = "user program"
UNKNOWN = "user or unknown"
REQUEUED = "requeued, no evidence"

_NODE_FAIL_STATES = ("NODE_FAIL", "BOOT_FAIL")
# What makes a cause the primary one; the names at the end only settle a tie, so that it is always settled alike.
_NEAREST = ("failed", "symptom", "priority", "first_at", "node", "check", "fault", "component")
_ALL = fault_table.bits(fault_table.DOMAINS)
_USER = fault_table.bits(("user",))


@dataclass(frozen=True, slots=True)
class Attribution:
    """The settings, and their defaults. `before_min` counts from the anchor back, `after_min` from the end on."""

    before_min: float = 10.0
    after_min: float = 5.0
    anchor: Literal["end", "start"] = "end"
    min_severity: Severity = Severity.MAJOR  # from here on a finding is a failed check
    # A fault that was reported long before and was open all through the window. It is kept among the causes, but counts
    # only if this is set: on simulated fleets most jobs that end so ended for another reason (docs/history.md).
    open_faults: bool = False
    open_at_most_h: float = 24.0  # a fault that was never cleared counts as open for this long
    states: tuple[str, ...] = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "REQUEUED")
    shared_share: float = 0.5  # a fault on this share of a job's nodes (and on at least two) is no single node's

    def __post_init__(self) -> None:
        if self.before_min < 0 or self.after_min < 0 or self.open_at_most_h < 0:
            raise ValueError("before_min, after_min, open_at_most_h: expected 0 or more")
        if not 0 < self.shared_share <= 1:
            raise ValueError(f"shared_share: expected above 0, up to 1, got {self.shared_share}")


@dataclass(frozen=True, slots=True)
class Attributed:
    """`ends`: one row for each run that ended in one of the settings' states.

      run, job_id, attempt, state, start_at, end_at, run_s, gpu_h, gpus, node_count, verdict,
      category, fault, check, node, lasts (of the primary cause), domains (bits of fault_table.DOMAINS that remain),
      blamed (nodes), shared (the primary fault is on many of the job's nodes), possibly_user, causes (how many)

    `causes`: one row for each fault on a node in a run's window, the primary one marked. What does not count (below
    `min_severity`, a user's own, open since before the window) is kept with failed = false.
    """

    ends: pl.DataFrame
    causes: pl.DataFrame
    settings: Attribution

    @property
    def infrastructure(self) -> pl.DataFrame:
        """The ends that count as failures of the fleet: attributed ones and NODE_FAIL without evidence."""
        return self.ends.filter(pl.col("verdict").is_in((INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL)))


def attribute(history: History, settings: Attribution | None = None) -> Attributed:
    """Every failed run with its cause, or with the reason why it has none."""
    settings = settings or Attribution()
    ended = started(history).filter(pl.col("end_at").is_not_null() & pl.col("state").is_in(settings.states))
    ended = ended.with_columns(pl.col("node_count").fill_null(pl.col("nodes").list.len().cast(pl.Int32)))
    causes = _causes(history, ended, settings)
    primary = causes.filter("primary").select(
        "run", "category", "fault", "check", "node", "lasts", pl.col("domains").alias("primary_domains")
    )
    ends = (
        ended.select("run", "job_id", "attempt", "state", "start_at", "end_at", "run_s", "gpu_h", "gpus", "node_count")
        .join(primary, on="run", how="left", maintain_order="left")
        .join(_per_run(causes), on="run", how="left", maintain_order="left")
        .join(_blame(causes, ended, settings), on="run", how="left", maintain_order="left")
        .join(_named_by_slurm(ended), on="run", how="left", maintain_order="left")
    )
    return Attributed(_judged(ends), causes, settings)


def _named_by_slurm(ended: pl.DataFrame) -> pl.DataFrame:
    """run, lost: the node of the run's own that Slurm says failed. One that is not the run's is a mistake."""
    own = pl.col("failed_node").is_in(pl.col("nodes"))
    named = ended.filter(pl.col("failed_node").is_not_null()).filter(own.fill_null(False))
    return named.select("run", pl.col("failed_node").alias("lost"))


def window(settings: Attribution) -> tuple[pl.Expr, pl.Expr]:
    """The first and the last moment (both inclusive) at which a failed check counts for a run."""
    anchor = pl.col("end_at" if settings.anchor == "end" else "start_at")
    return anchor - timedelta(minutes=settings.before_min), pl.col("end_at") + timedelta(minutes=settings.after_min)


def _causes(history: History, ended: pl.DataFrame, settings: Attribution) -> pl.DataFrame:
    first, last = window(settings)
    windows = (
        ended.select("run", first.alias("lo"), last.alias("hi"), pl.col("nodes").alias("node"))
        .explode("node", empty_as_null=True)
        .filter(pl.col("node").is_not_null())
    )
    found = evidence.met(evidence.episodes(history.events, timedelta(hours=settings.open_at_most_h)), windows)
    reported = (pl.col("events") > 0) | settings.open_faults
    failed = reported & (pl.col("severity") >= int(settings.min_severity)) & (pl.col("domains") != _USER)
    # "Nearest" first: what counts, then causes before symptoms, then the taxonomy, then time.
    return (
        found.with_columns(failed.fill_null(False).alias("failed"))
        .sort(["run", *_NEAREST], descending=[False, True, *[False] * (len(_NEAREST) - 1)])
        .with_columns((pl.col("failed") & (pl.int_range(pl.len()).over("run") == 0)).alias("primary"))
    )


def _per_run(causes: pl.DataFrame) -> pl.DataFrame:
    """How many causes, and the domains that remain when each failed check has ruled out what it can."""
    failed = pl.col("failed")
    seen_user = ((pl.col("domains") == _USER) & (pl.col("events") > 0)).any()
    return causes.group_by("run").agg(
        failed.sum().cast(pl.Int32).alias("causes"),
        pl.col("domains").filter(failed).bitwise_and().alias("remaining"),
        seen_user.alias("user_seen"),
    )


def _blame(causes: pl.DataFrame, ended: pl.DataFrame, settings: Attribution) -> pl.DataFrame:
    """The nodes that show the primary fault, unless it is a symptom or on many of the job's nodes at once."""
    primary = causes.filter("primary").select("run", "fault", "symptom")
    showing = (
        causes.filter("failed")
        .join(primary, on=["run", "fault"], how="inner")
        .group_by("run")
        .agg(pl.col("node").unique().sort().alias("showing"), pl.col("symptom").any())
        .join(ended.select("run", "node_count"), on="run")
    )
    nodes = pl.col("showing").list.len()
    shared = (nodes > 1) & (nodes >= pl.col("node_count") * settings.shared_share)
    return showing.select(
        "run",
        shared.alias("shared"),
        pl.when(shared | pl.col("symptom"))
        .then(pl.lit([], dtype=pl.List(pl.String)))
        .otherwise("showing")
        .alias("blamed"),
    )


def _judged(ends: pl.DataFrame) -> pl.DataFrame:
    node_fail = pl.col("state").is_in(_NODE_FAIL_STATES)
    seen = pl.col("category").is_not_null()
    verdict = (
        pl.when(seen)
        .then(pl.lit(INFRASTRUCTURE))
        .when(node_fail)
        .then(pl.lit(UNATTRIBUTED_NODE_FAIL))
        .when(pl.col("state") == "REQUEUED")
        .then(pl.lit(REQUEUED))
        .when(pl.col("user_seen"))
        .then(pl.lit(USER))
        .otherwise(pl.lit(UNKNOWN))
    )
    allowed = pl.when(node_fail).then(pl.lit(_ALL & ~_USER)).otherwise(pl.lit(_ALL)).cast(pl.Int8)
    # Signals that contradict each other rule out everything: then the primary cause alone speaks.
    left = pl.col("remaining").fill_null(_ALL) & allowed
    domains = pl.when(left != 0).then(left).otherwise(pl.col("primary_domains").fill_null(_ALL))
    domains = pl.when(~seen & pl.col("user_seen") & ~node_fail).then(pl.lit(_USER)).otherwise(domains)
    return (
        ends.with_columns(
            verdict.alias("verdict"),
            domains.cast(pl.Int8).alias("domains"),
            pl.col("causes").fill_null(0),
            pl.col("shared").fill_null(False),
            pl.col("blamed").fill_null(pl.lit([], dtype=pl.List(pl.String))),
            pl.col("user_seen").fill_null(False),
        )
        .with_columns(*_lost())
        .with_columns(
            (pl.col("verdict") == INFRASTRUCTURE)
            .and_((pl.col("domains") & _USER > 0) | pl.col("user_seen"))
            .alias("possibly_user")
        )
        .drop("primary_domains", "remaining", "user_seen", "lost")
    )


def _lost() -> tuple[pl.Expr, pl.Expr]:
    """Without evidence that names a node, the node that Slurm lost is the one."""
    none = (pl.col("blamed").list.len() == 0) & ~pl.col("shared") & pl.col("lost").is_not_null()
    none &= pl.col("verdict").is_in((INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL))
    return (
        pl.when(none).then(pl.concat_list("lost")).otherwise("blamed").alias("blamed"),
        pl.when(none).then(pl.coalesce("node", "lost")).otherwise("node").alias("node"),
    )
