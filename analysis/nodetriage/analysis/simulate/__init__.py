"""A fleet and its jobs with planted truth, from a seed: what the rates, models and findings are measured against.

The mix of sizes, the rates and the lemons follow the published research clusters (arXiv 2410.21680). One seed and
one `Fleet` always give the same tables.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from nodetriage.analysis.simulate import events, faults, jobs, lanes
from nodetriage.analysis.simulate.planted import EPOCH_DAYS, KINDS, RESEARCH_MIX, Fleet, Size

__all__ = ["RESEARCH_MIX", "Fleet", "Simulated", "Size", "Truth", "epochs", "fleet"]


@dataclass(frozen=True, slots=True)
class Truth:
    """What was planted.

    failures: one row per attempt that a fault ended, and per attempt whose failing program printed an Xid
      job_id:String, attempt:Int32, at:Datetime, cause:String ("infrastructure"|"user"), category:String,
      node:String (the one at fault), rack_event:Int64|null, evidence:String ("seen"|"silent"|"late")
    nodes: one row per node
      node:String, rack:String, switch:String, lemon:Boolean, hazard_per_1000_node_days:Float64
    """

    failures: pl.DataFrame
    nodes: pl.DataFrame
    fleet: Fleet


@dataclass(frozen=True, slots=True)
class Simulated:
    """The tables that the reports read, and the truth behind them. Jobs and events are in order of time."""

    jobs: pl.DataFrame
    events: pl.DataFrame
    truth: Truth


def fleet(
    seed: int, settings: Fleet | None = None, progress: Callable[[int, int], None] = lambda week, weeks: None
) -> Simulated:
    """The whole history at once; It calls `progress` for each week. Four million jobs take some 15 s and 3 GB."""
    settings = settings or Fleet()
    weeks = -(-settings.days // EPOCH_DAYS)
    parts = []
    for week, part in enumerate(epochs(seed, settings), 1):
        parts.append(part)
        progress(week, weeks)
    return Simulated(
        jobs=pl.concat([p.jobs for p in parts]).sort("start_at", maintain_order=True),
        events=pl.concat([p.events for p in parts]).sort("at", maintain_order=True),
        truth=Truth(pl.concat([p.truth.failures for p in parts]), parts[0].truth.nodes, settings),
    )


def epochs(seed: int, settings: Fleet) -> Iterator[Simulated]:
    """The history week by week, so that more can be written out than fits into memory."""
    rng = np.random.default_rng(seed)
    names = pl.Series([f"node{i:05d}" for i in range(settings.nodes)])
    well = faults.nodes(rng, settings)
    truth_nodes = _node_table(names, well)
    first_job = 1
    for epoch in range(-(-settings.days // EPOCH_DAYS)):
        days = min(EPOCH_DAYS, settings.days - epoch * EPOCH_DAYS)
        base_us = jobs.epoch_start_us(settings, epoch)
        struck = faults.draw(rng, settings, well, days)
        dealt = lanes.deal(rng, settings)
        runs = jobs.decide(rng, dealt, lanes.run(rng, settings, dealt, struck, days), first_job)
        table = jobs.table(rng, settings, names, dealt, struck, runs, epoch)
        seen, evidence = events.of_faults(rng, settings, names, struck, base_us)
        printed, failing, on_node = events.of_users(rng, settings, names, dealt, runs, base_us)
        noise = events.noise(rng, settings, names, days, base_us)
        failures = pl.concat(
            [
                _infrastructure(table, names, struck, runs, evidence, epoch),
                _users(table, names, failing, on_node),
            ]
        )
        yield Simulated(table, pl.concat([seen, printed, noise]), Truth(failures, truth_nodes, settings))
        first_job = int(runs.job.max(initial=first_job - 1)) + 1


def _node_table(names: pl.Series, well: faults.Nodes) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "node": names,
            "rack": pl.Series(well.rack).cast(pl.String).str.zfill(4),
            "switch": pl.Series(well.switch).cast(pl.String).str.zfill(3),
            "lemon": well.lemon,
            "hazard_per_1000_node_days": well.hazard_per_day * 1000,
        }
    ).with_columns(rack=pl.lit("rack") + pl.col("rack"), switch=pl.lit("switch") + pl.col("switch"))


def _infrastructure(
    table: pl.DataFrame,
    names: pl.Series,
    struck: faults.Faults,
    runs: jobs.Runs,
    evidence: faults.Ints,
    epoch: int,
) -> pl.DataFrame:
    rows = np.flatnonzero(runs.failed)
    cause = runs.attempts.cut_by[rows]
    event = pl.Series(struck.rack_event[cause], dtype=pl.Int64)
    return table[rows].select(
        "job_id",
        "attempt",
        pl.col("end_at").alias("at"),
        pl.lit("infrastructure").alias("cause"),
        pl.Series("category", [k.category for k in KINDS], dtype=pl.String).gather(struck.kind[cause]),
        names.gather(struck.node[cause]).alias("node"),
        # Unlike over epochs: the week, then the event's number in it.
        pl.when(event >= 0).then(event + epoch * 1_000_000).alias("rack_event"),
        pl.Series("evidence", ["silent", "seen", "late"]).gather(evidence[cause]),
    )


def _users(table: pl.DataFrame, names: pl.Series, failing: faults.Ints, node: faults.Ints) -> pl.DataFrame:
    return table[failing].select(
        "job_id",
        "attempt",
        pl.col("end_at").alias("at"),
        pl.lit("user").alias("cause"),
        pl.lit("application_xid").alias("category"),
        names.gather(node).alias("node"),
        pl.lit(None, dtype=pl.Int64).alias("rack_event"),
        pl.lit("seen").alias("evidence"),
    )
