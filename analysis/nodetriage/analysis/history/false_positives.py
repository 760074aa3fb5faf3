"""The false-positive budget: jobs that COMPLETED although a check failed on one of their nodes while they ran.

It is a correlation, not proof of a false alarm: a job can survive a real fault. But where many do, the check reports
too much. The budget is strict: a share of exactly 1 % is over it.
"""

from dataclasses import dataclass
from datetime import timedelta

import polars as pl
from scipy import stats

from nodetriage.analysis.history import evidence
from nodetriage.analysis.history.fault_table import bits
from nodetriage.analysis.history.history import History
from nodetriage.checks.model import Severity


@dataclass(frozen=True, slots=True)
class Budget:
    """`share` of COMPLETED jobs that may have seen a failed check, strictly below."""

    share: float = 0.01
    min_severity: Severity = Severity.MAJOR

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share: expected above 0, up to 1, got {self.share}")


@dataclass(frozen=True, slots=True)
class FalsePositives:
    """`per_check`: check (or "all checks"), jobs, share, low, high (90 %), over_budget. `completed`: jobs in all."""

    completed: int
    per_check: pl.DataFrame
    budget: Budget

    @property
    def alarm(self) -> bool:
        """Whether the budget is spent, by one check or by all together."""
        return bool(self.per_check["over_budget"].any())


def false_positives(history: History, budget: Budget | None = None) -> FalsePositives:
    """Counts the COMPLETED jobs of the period that saw a failed check between their start and their end."""
    budget = budget or Budget()
    done = history.jobs.lazy().filter(
        (pl.col("state") == "COMPLETED") & pl.col("start_at").is_not_null() & pl.col("end_at").is_not_null()
    )
    completed = int(done.select(pl.len()).collect().item())
    serious = history.events.filter(
        (pl.col("severity") >= int(budget.min_severity)) & pl.col("kind").is_in(("raised", "changed", "repeated"))
    )
    moments = evidence.episodes(serious, timedelta(0))
    windows = _windows(done, serious["node"].unique())
    seen = evidence.met(moments, windows).filter(pl.col("domains") != bits(("user",)))
    jobs = seen.select("run", "check").unique()
    rows = [_row("all checks", jobs["run"].n_unique(), completed, budget)]
    counts = jobs.group_by("check").len("jobs").sort(["jobs", "check"], descending=[True, False])
    rows += [_row(check, n, completed, budget) for check, n in counts.iter_rows()]
    return FalsePositives(completed, pl.DataFrame(rows), budget)


def share_interval(count: int, of: int, level: float = 0.9) -> tuple[float, float]:
    """The shares that `count` out of `of` leaves credible (Clopper and Pearson 1934); 0 to 1 where there is nothing."""
    if of == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = float(stats.beta.ppf(tail, count, of - count + 1)) if count else 0.0
    high = float(stats.beta.isf(tail, count + 1, of - count)) if count < of else 1.0
    return low, high


def with_share(table: pl.DataFrame, count: str, of: int) -> pl.DataFrame:
    """`table` with the share that each row's `count` is `of` all, and its 90 % interval: share, low, high."""
    bounds = [share_interval(int(n), of) for n in table[count]]
    return table.with_columns(
        (pl.col(count) / max(of, 1)).alias("share"),
        pl.Series("low", [b[0] for b in bounds], dtype=pl.Float64),
        pl.Series("high", [b[1] for b in bounds], dtype=pl.Float64),
    )


def _windows(done: pl.LazyFrame, nodes: pl.Series) -> pl.DataFrame:
    # Most nodes have no failed check; so their jobs are filtered before the join.
    return (
        done.select("run", pl.col("nodes").alias("node"), pl.col("start_at").alias("lo"), pl.col("end_at").alias("hi"))
        .explode("node", empty_as_null=False)
        .filter(pl.col("node").is_in(nodes.implode()))
        .collect(engine="streaming")
    )


def _row(check: str, jobs: int, completed: int, budget: Budget) -> dict[str, object]:
    low, high = share_interval(jobs, completed)
    share = jobs / completed if completed else 0.0
    # Compared as whole jobs: 10 of 1000 is over a budget of 1 %, whatever the rounding.
    over = completed > 0 and jobs >= budget.share * completed - 1e-9
    return {"check": check, "jobs": jobs, "share": share, "low": low, "high": high, "over_budget": over}
