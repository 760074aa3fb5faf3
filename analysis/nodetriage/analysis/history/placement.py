"""Failures by where nodes stand: racks, switches, or any other grouping that the site can name."""

import numpy as np
import polars as pl

from nodetriage.analysis.history.exposure import Window, ran, seconds
from nodetriage.analysis.models import poisson


def node_days(jobs: pl.DataFrame, window: Window) -> pl.DataFrame:
    """node:String, node_days:Float64: time in jobs within the window; jobs that share a node count once each."""
    return (
        ran(jobs.lazy(), window)
        .select("nodes", (seconds() / 86_400).alias("node_days"))
        .filter(pl.col("node_days") > 0)
        .explode("nodes", empty_as_null=True, keep_nulls=True)
        .filter(pl.col("nodes").is_not_null())
        .group_by(pl.col("nodes").alias("node"))
        .agg(pl.col("node_days").sum())
        .sort("node")
        .collect()
    )


def by_group(failures: pl.DataFrame, exposure: pl.DataFrame, topology: pl.DataFrame, level: str) -> pl.DataFrame:
    """Rates of each group at `level`, a column of `topology`, worst first.

    `failures` has one row per failure with its node; `exposure` is node, node_days; `topology` is node and its groups.
    Gives group, nodes, failures, node_days, expected, per_1000_node_days, low, high (90 %), p_value (chance of so many
    or more, were all groups alike) and q_value (the same, allowing for how many groups there are; Benjamini-Hochberg).
    Nodes that `topology` does not know are the group "unknown".
    """
    counts = failures.group_by("node").agg(pl.len().alias("failures"))
    placed = (
        exposure.join(counts, on="node", how="full", coalesce=True)
        .join(topology.select("node", pl.col(level).alias("group")), on="node", how="left")
        .group_by(pl.col("group").fill_null("unknown"))
        .agg(pl.len().alias("nodes"), pl.col("failures").sum().cast(pl.Int64), pl.col("node_days").sum())
    )
    total, time = placed["failures"].sum(), placed["node_days"].sum()
    if not total or not time:
        return _with_chances(placed.with_columns(expected=pl.lit(0.0)))
    return _with_chances(placed.with_columns(expected=pl.col("node_days") / time * total))


def _with_chances(placed: pl.DataFrame) -> pl.DataFrame:
    from scipy import stats

    count, expected = placed["failures"].to_numpy(), placed["expected"].to_numpy()
    p_value = np.where(expected > 0, stats.poisson.sf(count - 1, np.maximum(expected, 1e-12)), 1.0)
    q_value = stats.false_discovery_control(p_value) if p_value.size else p_value
    rates = [poisson.rate("rate", int(k), t / 1000, "") for k, t in placed.select("failures", "node_days").iter_rows()]
    return placed.with_columns(
        per_1000_node_days=pl.Series([r.value for r in rates], dtype=pl.Float64),
        low=pl.Series([r.low for r in rates], dtype=pl.Float64),
        high=pl.Series([r.high for r in rates], dtype=pl.Float64),
        p_value=pl.Series(p_value, dtype=pl.Float64),
        q_value=pl.Series(q_value, dtype=pl.Float64),
    ).sort("p_value", "group")
