"""Measured failure rates of jobs. There are two means: of the job (hours) and of the node (node-days).

`failed` is an expression over the job table that is true where the infrastructure ended the run (NODE_FAIL, and FAILED
that was attributed); `category` names the cause. A rate counts failures over what ran, so idle time does not matter.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nodetriage.analysis.history.exposure import Window, daily_node_days, runs
from nodetriage.analysis.models import burst, poisson
from nodetriage.analysis.models.figure import Figure, positive
from nodetriage.analysis.models.mttf import GPUS_PER_NODE, PUBLISHED, theory_h

LARGE_GPUS = 128  # the rate r_f is taken over jobs strictly larger
PER_1000 = "per 1000 node-days"


def bucket(gpus: int) -> tuple[int, int]:
    """The size bucket of a job, both ends included: powers of two closed on the right, 65-128, 129-256, ..."""
    top = 1 << max(gpus - 1, 0).bit_length()
    return top // 2 + 1, top


@dataclass(frozen=True, slots=True)
class SizeBucket:
    """What was measured of all jobs of one size. `mean_nodes` is weighted by run time."""

    gpus_from: int
    gpus_to: int
    runs: int
    failures: int
    run_h: float
    node_days: float
    job_mttf: Figure  # hours of the job
    node_mttf: Figure  # node-days: nodes times longer

    @property
    def gpus(self) -> str:
        """The sizes as text: "2", "5-8"."""
        return f"{self.gpus_from}-{self.gpus_to}" if self.gpus_from < self.gpus_to else str(self.gpus_to)

    @property
    def mean_nodes(self) -> float:
        """Nodes of a job in this bucket; NaN where nothing ran."""
        return self.node_days * 24 / self.run_h if self.run_h else float("nan")


def by_size(jobs: pl.DataFrame, window: Window, failed: pl.Expr) -> tuple[SizeBucket, ...]:
    """MTTF per size bucket, smallest first; jobs whose GPUs are not known are left out."""
    totals = _totals(runs(jobs, window, failed).filter(pl.col("gpus") > 0))
    grouped: dict[tuple[int, int], list[dict[str, float]]] = {}
    for row in totals.to_dicts():
        grouped.setdefault(bucket(int(row["gpus"])), []).append(row)
    return tuple(_bucket(key, grouped[key]) for key in sorted(grouped))


def _totals(counted: pl.DataFrame) -> pl.DataFrame:
    return counted.group_by("gpus").agg(
        pl.len().alias("runs"),
        pl.col("failed").sum().alias("failures"),
        pl.col("run_h").sum(),
        (pl.col("run_h") * pl.col("node_count") / 24).sum().alias("node_days"),
    )


def _bucket(key: tuple[int, int], rows: list[dict[str, float]]) -> SizeBucket:
    failures = int(sum(r["failures"] for r in rows))
    run_h, node_days = sum(r["run_h"] for r in rows), sum(r["node_days"] for r in rows)
    return SizeBucket(
        *key,
        runs=int(sum(r["runs"] for r in rows)),
        failures=failures,
        run_h=run_h,
        node_days=node_days,
        job_mttf=poisson.mean_time("job-level MTTF", failures, run_h, "h"),
        node_mttf=poisson.mean_time("node-level MTTF", failures, node_days, "node-days"),
    )


@dataclass(frozen=True, slots=True)
class FleetRate:
    """r_f and what it was taken over; `largest_nodes` is where projections begin to extrapolate."""

    rf: Figure
    failures: int
    node_days: float
    larger_than_gpus: int
    largest_nodes: int
    burst: burst.Burst


def fleet_rate(jobs: pl.DataFrame, window: Window, failed: pl.Expr, larger_than_gpus: int = LARGE_GPUS) -> FleetRate:
    """Failures per 1000 node-days over jobs of more than `larger_than_gpus` GPUs, widened where they come in bursts."""
    large = jobs.filter(pl.col("gpus") > larger_than_gpus)
    counted = runs(large, window, failed)
    node_days = float((counted["run_h"] * counted["node_count"]).sum()) / 24
    failures = int(counted["failed"].sum())
    ends = large.filter(failed.fill_null(False) & window.holds("end_at").fill_null(False))["end_at"]
    times_day = (ends - window.since).dt.total_microseconds().to_numpy() / 86_400e6
    tested = burst.test(times_day.astype(np.float64), daily_node_days(large, window))
    rf = poisson.rate("r_f", failures, node_days / 1000, PER_1000, dispersion=tested.widening)
    largest = max(counted["node_count"].to_list(), default=0)
    return FleetRate(rf, failures, node_days, larger_than_gpus, largest, tested)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A bucket whose interval leaves out what one rate for all sizes predicts."""

    bucket: SizeBucket
    model_mttf_h: float
    text: str


def misfits(buckets: tuple[SizeBucket, ...], rf_per_1000_node_days: float) -> tuple[Misfit, ...]:
    """Alarms: where 1/(N r_f) lies outside a bucket's 90 % interval. One in ten buckets is outside by chance."""
    if not rf_per_1000_node_days > 0:
        return ()
    found = []
    for b in (b for b in buckets if b.run_h > 0):
        model_h = theory_h(b.mean_nodes, rf_per_1000_node_days)
        low, high = b.job_mttf.low or 0.0, b.job_mttf.high or float("inf")
        if not low <= model_h <= high:
            side = "longer" if model_h > high else "shorter"
            text = (
                f"{b.gpus} GPUs: the model's MTTF of {model_h:.3g} h is {side} than measured"
                f" ({low:.3g} to {high:.3g} h at 90 %, {b.failures} failures)"
            )
            found.append(Misfit(b, model_h, text))
    return tuple(found)


def per_1000_node_days(per_gpu_hour: float, gpus_per_node: int = GPUS_PER_NODE) -> float:
    """A rate per GPU-hour in failures per 1000 node-days: times 24 x GPUs per node x 1000. Raises OutOfDomain."""
    positive(gpus_per_node=gpus_per_node)
    return per_gpu_hour * 24 * gpus_per_node * 1000


def per_gpu_hour(per_1000_node_days: float, gpus_per_node: int = GPUS_PER_NODE) -> float:
    """The inverse of `per_1000_node_days`. Raises OutOfDomain."""
    positive(gpus_per_node=gpus_per_node)
    return per_1000_node_days / (24 * gpus_per_node * 1000)


@dataclass(frozen=True, slots=True)
class Compared:
    """Another cluster's rate and this one's; `ratio` is own over theirs."""

    cluster: str
    rf_per_1000_node_days: float
    about: str
    ratio: float
    differs: bool  # it lies outside this cluster's 90 % interval


def compare(own: Figure) -> tuple[Compared, ...]:
    """The published clusters, highest rate first, each with the ratio of `own` (per 1000 node-days) to it."""
    rows = []
    for name, (rate, about) in PUBLISHED.items():
        inside = own.low is None or own.high is None or own.low <= rate <= own.high
        rows.append(Compared(name, rate, about, own.value / rate, not inside))
    return tuple(rows)
