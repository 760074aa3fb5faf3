"""Goodput: useful time over wall time under checkpoints, rework and restarts. Minutes throughout.

`checkpoint_interval_min` is the useful time between two writes (tau), `checkpoint_write_min` what one costs (delta).
First order after Young (1974), exact after Daly (2006).
"""

import math
from dataclasses import dataclass

from nodetriage.analysis.models.figure import Figure, OutOfDomain, not_negative, positive

_SHARE = "share of wall time"
_OVERHEAD = "of useful time"


@dataclass(frozen=True, slots=True)
class FirstOrder:
    """Goodput 1 / (1 + the three wastes), each waste as a share of useful time."""

    goodput: Figure
    checkpoint: Figure  # delta / tau
    rework: Figure  # (tau + delta) / 2M: a failure costs half a segment on average
    restart: Figure  # R / M

    def figures(self) -> tuple[Figure, ...]:
        """All of them, to print."""
        return (self.goodput, self.checkpoint, self.rework, self.restart)


def first_order(
    checkpoint_interval_min: float, checkpoint_write_min: float, mtbf_min: float, restart_min: float
) -> FirstOrder:
    """The three wastes and what they leave; overstates goodput where they are not small. Raises OutOfDomain."""
    _check(checkpoint_interval_min, checkpoint_write_min, mtbf_min, restart_min)
    checkpoint = checkpoint_write_min / checkpoint_interval_min
    rework = (checkpoint_interval_min + checkpoint_write_min) / (2 * mtbf_min)
    restart = restart_min / mtbf_min
    notes: tuple[str, ...] = ()
    if rework + restart > 0.2:
        notes = (f"failures cost {rework + restart:.0%} of useful time: first order overstates, use the exact form",)
    return FirstOrder(
        goodput=Figure("goodput, first order", 1 / (1 + checkpoint + rework + restart), _SHARE, notes=notes),
        checkpoint=Figure("waste in checkpoint writes", checkpoint, _OVERHEAD),
        rework=Figure("waste in rework", rework, _OVERHEAD),
        restart=Figure("waste in restarts", restart, _OVERHEAD),
    )


def exact_goodput(
    checkpoint_interval_min: float, checkpoint_write_min: float, mtbf_min: float, restart_min: float
) -> Figure:
    """tau / [M e^{R/M} (e^{(tau+delta)/M} - 1)]: failures strike restarts and rework too. Raises OutOfDomain."""
    _check(checkpoint_interval_min, checkpoint_write_min, mtbf_min, restart_min)
    segment = (checkpoint_interval_min + checkpoint_write_min) / mtbf_min
    try:
        wall = mtbf_min * math.exp(restart_min / mtbf_min) * math.expm1(segment)
    except OverflowError:
        wall = math.inf
    return Figure("goodput, exact", checkpoint_interval_min / wall, _SHARE)


def crossover_mtbf_min(checkpoint_write_min: float, restart_min: float) -> float:
    """The MTBF below which restarts waste more than checkpoints at Young's interval: R^2 / (2 delta). OutOfDomain."""
    positive(checkpoint_write_min=checkpoint_write_min, restart_min=restart_min)
    return restart_min**2 / (2 * checkpoint_write_min)


def uptime(mtbf_min: float, repair_min: float, lost_min: float) -> Figure:
    """MTBF / (MTBF + MTTR + lost work). Raises OutOfDomain."""
    positive(mtbf_min=mtbf_min)
    not_negative(repair_min=repair_min, lost_min=lost_min)
    note = "has no term for checkpoint writes: it is not goodput"
    return Figure("uptime", mtbf_min / (mtbf_min + repair_min + lost_min), _SHARE, notes=(note,))


def usd_per_day(gpus: float, usd_per_gpu_hour: float, points: float) -> Figure:
    """The cost per day of so many percentage points of a fleet's goodput. Raises OutOfDomain."""
    positive(gpus=gpus, usd_per_gpu_hour=usd_per_gpu_hour)
    if not -100 <= points <= 100:
        raise OutOfDomain(f"points: expected -100 to 100, got {points:g}")
    return Figure("cost", gpus * usd_per_gpu_hour * 24 * points / 100, "USD per day")


def _check(interval_min: float, write_min: float, mtbf_min: float, restart_min: float) -> None:
    positive(checkpoint_interval_min=interval_min, mtbf_min=mtbf_min)
    not_negative(checkpoint_write_min=write_min, restart_min=restart_min)
