"""The seven signals of a lemon node over a rolling window (arXiv 2410.21680, section on lemon nodes)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from nodetriage.analysis.history.attribution import Attributed
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
    """Run time by node and day of the end: a run is not longer than a few days, so the error is small over 28."""
    single = pl.col("nodes").list.len() == 1
    run_days = (pl.col("end_at") - pl.col("start_at")).dt.total_microseconds() / 86_400e6
    return (
        history.jobs.lazy()
        .filter(pl.col("start_at").is_not_null() & pl.col("end_at").is_not_null())
        .select(
            pl.col("nodes").alias("node"),
            pl.col("end_at").dt.date().alias("day"),
            run_days.alias("node_days"),
            pl.when(single).then(run_days).otherwise(0.0).alias("single_days"),
            single.fill_null(False).cast(pl.UInt32).alias("single_jobs"),
        )
        .explode("node", empty_as_null=False)
        .filter(pl.col("node").is_not_null())
        .group_by("node", "day")
        .agg(pl.col("node_days", "single_days", "single_jobs").sum())
        .collect(engine="streaming")
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
