"""Lemon nodes: the few that fail jobs again and again although each repair found no fault.

A node is recommended for the Lemon state when the occasions on which it failed jobs are improbable for a node of this
fleet (Poisson tail against the rate of all other nodes, false discovery rate after Benjamini and Hochberg 1995),
or when signals of two kinds stand out of the fleet's own distribution. Users' exclusions explain, they never flag.
The result is a recommendation: nothing here changes a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from nodetriage.analysis.lemons.signals import WINDOW_DAYS, Facts, signals
from nodetriage.analysis.tables import TIME

# Signals of one kind repeat each other, so two kinds must agree. Exclusions are no kind: users exclude by hearsay.
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "failures": ("multi_node_node_fails", "single_node_node_fails"),
        "xids": ("xid_cnt",),
        "service": ("tickets", "out_count"),
    }
)

_FLOORS = MappingProxyType(
    {
        "excl_jobid_count": 5.0,
        "xid_cnt": 3.0,
        "tickets": 2.0,
        "out_count": 3.0,
        "multi_node_node_fails": 2.0,
        "single_node_node_fails": 2.0,
        "single_node_failures_per_node_day": 0.1,
        "single_node_failure_share": 0.1,
    }
)


@dataclass(frozen=True, slots=True)
class Lemons:
    """The settings. A signal stands out beyond the fleet's `percentile` of it, but not below its floor."""

    window_days: int = WINDOW_DAYS
    step_days: int = 7
    false_discovery_rate: float = 0.01
    least_failures: int = 3  # fewer are never enough for the test to flag
    percentile: float = 0.99
    least_kinds: int = 2
    floors: Mapping[str, float] = field(default_factory=lambda: dict(_FLOORS))

    def __post_init__(self) -> None:
        if self.window_days < 1 or self.step_days < 1:
            raise ValueError("window_days, step_days: expected at least 1")
        if not 0 < self.false_discovery_rate < 1 or not 0 < self.percentile < 1:
            raise ValueError("false_discovery_rate, percentile: expected between 0 and 1")
        if unknown := set(self.floors) - set(_FLOORS):
            raise ValueError(f"floors: unknown signal {', '.join(sorted(unknown))}")


@dataclass(frozen=True, slots=True)
class Judged:
    """One window. `nodes`: the signals, and failures, expected, p, q, above (signals that stand out), flagged."""

    until: datetime
    nodes: pl.DataFrame
    thresholds: Mapping[str, float]
    settings: Lemons

    @property
    def flagged(self) -> list[str]:
        """The nodes to look at, the least probable first."""
        return self.nodes.filter("flagged").sort("p", "node")["node"].to_list()


def judge(of: Facts, until: datetime, settings: Lemons | None = None) -> Judged:
    """The fleet's nodes over the window that ends at `until`."""
    settings = settings or Lemons()
    rows = signals(of, until, settings.window_days)
    p, expected = _improbability(rows, settings.window_days)
    q = stats.false_discovery_control(p) if len(p) else p
    limits = thresholds(rows, settings)
    above = [pl.when(pl.col(s) >= limit).then(pl.lit(s)) for s, limit in limits.items()]
    kinds = pl.sum_horizontal(
        pl.any_horizontal(pl.col(s) >= limits[s] for s in members).cast(pl.Int32) for members in KINDS.values()
    )
    failures = pl.col("multi_node_node_fails") + pl.col("single_node_node_fails")
    most = pl.max_horizontal("occasions", "out_count")
    rows = rows.with_columns(
        failures.alias("failures"),
        pl.Series("expected", expected, dtype=pl.Float64),
        pl.Series("p", p, dtype=pl.Float64),
        pl.Series("q", q, dtype=pl.Float64),
        pl.concat_list(above).list.drop_nulls().alias("above"),
        kinds.alias("kinds"),
    )
    improbable = (pl.col("q") <= settings.false_discovery_rate) & (most >= settings.least_failures)
    flagged = improbable | (pl.col("kinds") >= settings.least_kinds)
    return Judged(until, rows.with_columns(flagged.alias("flagged")), limits, settings)


def rolling(of: Facts, since: datetime, until: datetime, settings: Lemons | None = None) -> pl.DataFrame:
    """node, first_flagged_at, windows (in which it was flagged), over windows that step through the history."""
    settings = settings or Lemons()
    found = []
    columns: dict[str, pl.DataType] = {"node": pl.String(), "at": TIME}
    at = min(since + timedelta(days=settings.window_days), until)
    while at <= until:
        found += [(node, at) for node in judge(of, at, settings).flagged]
        # The last window ends with the history, however the steps fall.
        following = at + timedelta(days=settings.step_days)
        at = following if at == until else min(following, until)
    return (
        pl.DataFrame(found, schema=columns, orient="row")
        .group_by("node")
        .agg(pl.col("at").min().alias("first_flagged_at"), pl.len().alias("windows"))
        .sort("first_flagged_at", "node")
    )


def thresholds(rows: pl.DataFrame, settings: Lemons) -> dict[str, float]:
    """For each signal the least value that stands out: beyond the fleet's percentile, and not below the floor."""
    found = {}
    for signal, floor in {**_FLOORS, **settings.floors}.items():
        at = rows[signal].cast(pl.Float64).quantile(settings.percentile, "nearest") if rows.height else None
        counted = not signal.startswith("single_node_failure")
        beyond = (at or 0.0) + 1 if counted else float(np.nextafter(at or 0.0, np.inf))
        found[signal] = max(beyond, floor)
    return found


def _improbability(rows: pl.DataFrame, days: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The chance of so many failures on an ordinary node, and how many were to be expected."""
    failures = rows["occasions"].to_numpy().astype(np.float64)
    used = rows["node_days"].to_numpy().astype(np.float64)
    outs = rows["out_count"].to_numpy().astype(np.float64)
    by_jobs, expected = _tail(failures, used)
    by_outs, expected_outs = _tail(outs, np.full(len(outs), float(days)))
    # Two looks at one node: Bonferroni for the pair.
    chance = np.minimum(1.0, 2 * np.minimum(by_jobs, by_outs))
    return chance, np.where(by_jobs <= by_outs, expected, expected_outs)


def _tail(
    counts: npt.NDArray[np.float64], exposure: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """P(X >= count) for X Poisson with the rate of all other nodes; a node's own failures do not excuse it."""
    others, time = counts.sum() - counts, exposure.sum() - exposure
    # Half a failure more: a fleet without a failure so far can still fail.
    rate = np.divide(others + 0.5, time, out=np.zeros_like(counts), where=time > 0)
    expected = rate * exposure
    chance = np.where((counts > 0) & (expected > 0), stats.poisson.sf(counts - 1, expected), 1.0)
    return chance, expected
