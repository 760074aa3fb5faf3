"""What it takes to reach a target: the write time or the failure rate that a given ETTR needs, tables and contours.

All at the best checkpoint interval of equation 2, whose ETTR falls with both write time and rate.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nodetriage.analysis.models import ettr
from nodetriage.analysis.models.figure import Figure, OutOfDomain, positive, share
from nodetriage.analysis.models.interruptions import MINUTES_PER_DAY

CONTOUR_GPUS = 12_288
CONTOUR_TARGETS = (0.70, 0.90, 0.95, 0.99)
_CONTOUR_RATES = tuple(10 ** (i / 20 - 1) for i in range(41))  # 0.1 to 10
_SENSITIVITY_RESTART_MIN = (1.0, 2.0, 5.0, 10.0, 20.0)
_SENSITIVITY_WRITE_MIN = (1 / 6, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No value of the unknown reaches the target; `best_ettr` is what remains when it is nil."""

    unknown: str
    target: float
    best_ettr: float

    def line(self) -> str:
        """One line for a person."""
        return (
            f"{self.unknown}: unreachable: ETTR {self.target:g} was asked, {self.best_ettr:.4f} is the most even at 0"
            " (model)"
        )


def write_needed_min(
    nodes: float, rf_per_1000_node_days: float, restart_min: float, target: float
) -> Figure | Unreachable:
    """The longest checkpoint write at which `target` is reached. Raises OutOfDomain.

    With x = sqrt(w l / 2), equation 2 at its best interval is E = (1 - l u0 - x) / (1 + x).
    """
    share(target=target)
    positive(nodes=nodes, rf_per_1000_node_days=rf_per_1000_node_days)
    rate = nodes * rf_per_1000_node_days / 1000 / MINUTES_PER_DAY
    slack = 1 - rate * restart_min - target
    if slack <= 0:
        return Unreachable("checkpoint write time", target, max(0.0, 1 - rate * restart_min))
    x = slack / (1 + target)
    return Figure("checkpoint write time needed", 2 * x**2 / rate, "min", notes=("or shorter",))


def exact_write_needed_min(
    nodes: float, rf_per_1000_node_days: float, restart_min: float, target: float
) -> Figure | Unreachable:
    """The same by the exact form (F7x) of a long run at its best interval (F13), at any rate. Raises OutOfDomain.

    With u = l u0, the best ETTR without a write is e^-u, and the write that leaves E is (E e^u - 1 - ln E - u) / l.
    """
    share(target=target)
    positive(nodes=nodes, rf_per_1000_node_days=rf_per_1000_node_days)
    rate = nodes * rf_per_1000_node_days / 1000 / MINUTES_PER_DAY
    spoilt = rate * restart_min
    if target >= math.exp(-spoilt):
        return Unreachable("checkpoint write time", target, math.exp(-spoilt))
    write = (target * math.exp(spoilt) - 1 - math.log(target) - spoilt) / rate
    return Figure("checkpoint write time needed", write, "min", notes=("or shorter; by the exact form",))


def rate_needed_per_1000_node_days(
    nodes: float, restart_min: float, checkpoint_write_min: float, target: float
) -> Figure | Unreachable:
    """The highest failure rate at which `target` is reached; there always is one. Raises OutOfDomain."""
    share(target=target)
    positive(nodes=nodes)
    if restart_min <= 0 and checkpoint_write_min <= 0:
        raise OutOfDomain("restart_min and checkpoint_write_min: expected at least one above 0")
    # l u0 + (1 + E) sqrt(w l / 2) = 1 - E is a quadratic in sqrt(l).
    b, c = (1 + target) * math.sqrt(checkpoint_write_min / 2), 1 - target
    root = 2 * c / (b + math.sqrt(b**2 + 4 * restart_min * c))
    value = root**2 * MINUTES_PER_DAY * 1000 / nodes
    return Figure("failure rate needed", value, "per 1000 node-days", notes=("or lower",))


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One line of the table: ETTR is None where equation 2 has no meaning any more."""

    restart_min: float
    checkpoint_write_min: float
    rf_per_1000_node_days: float
    checkpoint_interval_min: float
    ettr: float | None


def sensitivity(
    nodes: float,
    rates_per_1000_node_days: Sequence[float],
    restarts_min: Sequence[float] = _SENSITIVITY_RESTART_MIN,
    writes_min: Sequence[float] = _SENSITIVITY_WRITE_MIN,
) -> tuple[Sensitivity, ...]:
    """ETTR by equation 2 at its best interval, for each combination. Raises OutOfDomain."""
    rows = []
    for rf, restart, write in itertools.product(rates_per_1000_node_days, restarts_min, writes_min):
        interval = ettr.optimal_interval_min(nodes, rf, write)
        try:
            value: float | None = ettr.equation_2_at_best(nodes, rf, restart, write).value
        except OutOfDomain:
            value = None
        rows.append(Sensitivity(restart, write, rf, interval, value))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class ContourPoint:
    """On the line of `target`: at this rate, a write may take so long; None where no write time reaches it."""

    target: float
    rf_per_1000_node_days: float
    checkpoint_write_min: float | None


def contour(
    nodes: float = CONTOUR_GPUS / 8,
    restart_min: float = 5.0,
    targets: Sequence[float] = CONTOUR_TARGETS,
    rates_per_1000_node_days: Sequence[float] = _CONTOUR_RATES,
) -> tuple[ContourPoint, ...]:
    """Lines of equal ETTR over failure rate and write time. Raises OutOfDomain."""
    points = []
    for target, rf in itertools.product(targets, rates_per_1000_node_days):
        found = write_needed_min(nodes, rf, restart_min, target)
        points.append(ContourPoint(target, rf, found.value if isinstance(found, Figure) else None))
    return tuple(points)
