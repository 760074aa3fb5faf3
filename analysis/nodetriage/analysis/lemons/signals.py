"""The seven signals of a lemon node over a rolling window (arXiv 2410.21680, section on lemon nodes)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from nodetriage.analysis.history.attribution import Attributed
from nodetriage.analysis.history.exposure import ran
from nodetriage.analysis.history.history import History
from nodetriage.analysis.tables import TIME
from nodetriage.checks.model import Severity

WINDOW_DAYS = 28

# The names of the paper, and what each counts. The last one has two definitions, because the paper's texts differ.
SIGNALS = {
    "excl_jobid_count": "distinct jobs whose users excluded the node",
    "xid_cnt": "distinct Xid codes",
    "tickets": "repair tickets",
    "out_count": "times taken out of service",
    "multi_node_node_fails": "failures of multi-node jobs that are attributed to the node",
    "single_node_node_fails": "infrastructure failures of single-node jobs on the node",
    "single_node_failures_per_node_day": "the same, per day that single-node jobs ran on it",
    "single_node_failure_share": "the same, as a share of the single-node jobs that ended on it",
}

# Findings, or failed jobs, of one node that are closer together are one occasion: one dead GPU fails every job there.
_OCCASION_GAP = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the signals of any window are counted from; made once for a history.

    exclusions: job_id, node, at | xids: node, xid, at | outs, tickets: node, at
    failures: node, at, single, category, first (of its occasion) | use: node, day, node_days, single_days, single_jobs
    """

    nodes: pl.Series
    exclusions: pl.DataFrame
    xids: pl.DataFrame
    outs: pl.DataFrame
    tickets: pl.DataFrame
    failures: pl.DataFrame
    use: pl.DataFrame


def facts(history: History, attributed: Attributed) -> Facts:
    """Everything that happened to nodes, one row an occasion."""
    jobs = history.jobs.lazy()
    excluded = jobs.filter(pl.col("excluded_nodes").list.len() > 0).select(
        "job_id", pl.col("excluded_nodes").alias("node"), pl.col("submit_at").fill_null(pl.col("start_at")).alias("at")
    )
    reported = history.events.filter(pl.col("kind").is_in(("raised", "changed", "repeated")))
    use = _use(history)
    failures = _failures(history, attributed)
    known = [use["node"], reported["node"], history.outages["node"]]
    outages = history.outages
    drained = outages.filter(pl.col("kind") == "drained").select("node", "at")
    return Facts(
        nodes=pl.concat(known).unique().sort().alias("node"),
        exclusions=excluded.explode("node", empty_as_null=False).unique().collect(),
        xids=reported.filter(pl.col("xid").is_not_null()).select("node", "xid", "at"),
        # A history without a record of drains still shows when a node had to go.
        outs=drained if drained.height else _incidents(reported),
        tickets=outages.filter(pl.col("kind") == "ticket").select("node", "at"),
        failures=failures,
        use=use,
    )


def signals(of: Facts, until: datetime, days: int = WINDOW_DAYS) -> pl.DataFrame:
    """One row a node: SIGNALS, and occasions, node_days, single_days and single_jobs, over (until - days, until]."""
    since = until - timedelta(days=days)
    held = pl.col("at").is_between(pl.lit(since, dtype=TIME), pl.lit(until, dtype=TIME), closed="right")
    failed = of.failures.filter(held)
    # Days are whole in `use`; the first one of the window is the one after `since`.
    used = of.use.filter((pl.col("day") > since.date()) & (pl.col("day") <= until.date()))
    counts = [
        of.exclusions.filter(held).group_by("node").agg(pl.col("job_id").n_unique().alias("excl_jobid_count")),
        of.xids.filter(held).group_by("node").agg(pl.col("xid").n_unique().alias("xid_cnt")),
        of.tickets.filter(held).group_by("node").len("tickets"),
        of.outs.filter(held).group_by("node").len("out_count"),
        failed.filter(~pl.col("single")).group_by("node").len("multi_node_node_fails"),
        failed.filter("single").group_by("node").len("single_node_node_fails"),
        failed.filter("first").group_by("node").len("occasions"),
        used.group_by("node").agg(pl.col("node_days", "single_days", "single_jobs").sum()),
    ]
    rows = of.nodes.to_frame()
    for count in counts:
        rows = rows.join(count, on="node", how="left", maintain_order="left")
    rows = rows.fill_null(0)
    fails = pl.col("single_node_node_fails")
    return rows.with_columns(
        pl.when(pl.col("single_days") > 0).then(fails / pl.col("single_days")).otherwise(0.0)
        .alias("single_node_failures_per_node_day"),
        pl.when(pl.col("single_jobs") > 0).then(fails / pl.col("single_jobs")).otherwise(0.0)
        .alias("single_node_failure_share"),
    )  # fmt: skip


def _use(history: History) -> pl.DataFrame:
    """Busy time by node and day of the end: a stretch is not longer than a few days, so the error is small over 28.

    A node that runs eight jobs at once is busy once: its days are those of the union of its jobs.
    """
    single = pl.col("nodes").list.len() == 1
    rows = (
        ran(history.jobs.lazy(), history.window)
        .select(
            pl.col("nodes").alias("node"),
            pl.col("from_at").dt.epoch("us").alias("from_us"),
            pl.col("to_at").dt.epoch("us").alias("to_us"),
            single.fill_null(False).alias("single"),
            (single & pl.col("end_at").is_not_null()).fill_null(False).cast(pl.UInt32).alias("single_jobs"),
        )
        .explode("node", empty_as_null=False)
        .filter(pl.col("node").is_not_null())
        .collect(engine="streaming")
        .sort("node", "from_us")
    )
    alone = rows.filter("single")
    day = pl.from_epoch("to_us", time_unit="us").dt.date().alias("day")
    jobs = alone.group_by("node", day).agg(pl.col("single_jobs").sum())
    return (
        _busy(rows)
        .rename({"busy_days": "node_days"})
        .join(_busy(alone).rename({"busy_days": "single_days"}), on=["node", "day"], how="left")
        .join(jobs, on=["node", "day"], how="left")
        .with_columns(pl.col("single_days").fill_null(0.0), pl.col("single_jobs").fill_null(0))
    )


def _busy(rows: pl.DataFrame) -> pl.DataFrame:
    """node, day, busy_days: of rows in order of node and start, each adds what lies beyond the latest end so far."""
    seen = pl.col("to_us").cum_max().shift(1).over("node").fill_null(0)
    fresh_us = (pl.col("to_us") - pl.max_horizontal("from_us", seen)).clip(lower_bound=0)
    day = pl.from_epoch("to_us", time_unit="us").dt.date().alias("day")
    return (
        rows.with_columns((fresh_us / 86_400e6).alias("busy_days")).group_by("node", day).agg(pl.col("busy_days").sum())
    )


def _failures(history: History, attributed: Attributed) -> pl.DataFrame:
    """Job failures by the node that they are attributed to; of a multi-node job only where the evidence names one."""
    infra = attributed.infrastructure.select(
        "run", pl.col("end_at").alias("at"), "blamed", (pl.col("node_count") == 1).alias("single"), "category"
    )
    alone = infra.filter("single").join(history.jobs.select("run", "nodes"), on="run")
    rows = pl.concat(
        [
            alone.select(pl.col("nodes").alias("node"), "at", "single", "category"),
            infra.filter(~pl.col("single")).select(pl.col("blamed").alias("node"), "at", "single", "category"),
        ]
    )
    held = rows.explode("node", empty_as_null=False).filter(pl.col("node").is_not_null()).sort("node", "at")
    return held.with_columns((~_soon_after()).alias("first"))


def _incidents(reported: pl.DataFrame) -> pl.DataFrame:
    serious = reported.filter(pl.col("severity") >= int(Severity.CRITICAL)).select("node", "at").sort("node", "at")
    return serious.filter(~_soon_after())


def _soon_after() -> pl.Expr:
    """Whether a row follows the node's last one closely; rows in order of node and time."""
    return ((pl.col("at") - pl.col("at").shift(1).over("node")) <= _OCCASION_GAP).fill_null(False)
