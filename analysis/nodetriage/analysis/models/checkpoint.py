"""How often to checkpoint: Young (1974), Daly's series (2006), and the exact optimum. Minutes throughout."""

import math
from dataclasses import dataclass

from nodetriage.analysis.models.figure import Figure, OutOfDomain, positive
from nodetriage.analysis.models.goodput import exact_goodput

MINUTE = "min"


def young_min(checkpoint_write_min: float, mtbf_min: float) -> float:
    """tau = sqrt(2 delta M). Raises OutOfDomain."""
    positive(checkpoint_write_min=checkpoint_write_min, mtbf_min=mtbf_min)
    return math.sqrt(2 * checkpoint_write_min * mtbf_min)


def daly_min(checkpoint_write_min: float, mtbf_min: float) -> float:
    """Daly's series of three terms; M itself where the write takes twice the MTBF or longer. Raises OutOfDomain."""
    young = young_min(checkpoint_write_min, mtbf_min)
    if checkpoint_write_min >= 2 * mtbf_min:
        return mtbf_min
    x = checkpoint_write_min / (2 * mtbf_min)
    return young * (1 + math.sqrt(x) / 3 + x / 9) - checkpoint_write_min


def optimum_min(checkpoint_write_min: float, mtbf_min: float) -> float:
    """The interval of least wall time: M [1 + W0(-e^{-(1 + delta/M)})]; it does not depend on restart time.

    W0 is Lambert's function: the solution of e^{(tau+delta)/M} (1 - tau/M) = 1. Raises OutOfDomain.
    """
    from scipy.special import lambertw  # SciPy takes a third of a second to load

    positive(checkpoint_write_min=checkpoint_write_min, mtbf_min=mtbf_min)
    if checkpoint_write_min < 1e-8 * mtbf_min:
        # Next to its branch point W0 loses digits, and there the series is exact to as many.
        return daly_min(checkpoint_write_min, mtbf_min)
    return float(mtbf_min * (1 + lambertw(-math.exp(-(1 + checkpoint_write_min / mtbf_min))).real))


@dataclass(frozen=True, slots=True)
class Advice:
    """Three intervals, and how flat goodput is around them."""

    young: Figure
    daly: Figure
    optimum: Figure
    flat_from: Figure  # between these two, goodput is within a point of the best
    flat_to: Figure

    def figures(self) -> tuple[Figure, ...]:
        """All of them, to print."""
        return (self.young, self.daly, self.optimum, self.flat_from, self.flat_to)


def advise(checkpoint_write_min: float, mtbf_min: float, restart_min: float = 0.0) -> Advice:
    """Young, Daly and the optimum, with the goodput of each in its note. Raises OutOfDomain."""
    intervals = {
        "Young's interval": young_min(checkpoint_write_min, mtbf_min),
        "Daly's interval": daly_min(checkpoint_write_min, mtbf_min),
        "exact optimum": optimum_min(checkpoint_write_min, mtbf_min),
    }
    young, daly, optimum = (
        Figure(name, tau, MINUTE, notes=(f"goodput {_goodput(tau, checkpoint_write_min, mtbf_min, restart_min):.4f}",))
        for name, tau in intervals.items()
    )
    low, high = _flat(intervals["exact optimum"], checkpoint_write_min, mtbf_min, restart_min)
    return Advice(
        young,
        daly,
        optimum,
        Figure("within one point of the best, from", low, MINUTE),
        Figure("within one point of the best, to", high, MINUTE),
    )


def _goodput(interval_min: float, write_min: float, mtbf_min: float, restart_min: float) -> float:
    return exact_goodput(interval_min, write_min, mtbf_min, restart_min).value


def _flat(best_min: float, write_min: float, mtbf_min: float, restart_min: float) -> tuple[float, float]:
    floor = _goodput(best_min, write_min, mtbf_min, restart_min) - 0.01
    if floor <= 0:
        raise OutOfDomain("goodput at the best interval is below one point: no interval makes this run worth while")

    def edge(step: float) -> float:
        inside, outside = best_min, best_min * step
        while _goodput(outside, write_min, mtbf_min, restart_min) > floor:
            inside, outside = outside, outside * step
        for _ in range(50):
            middle = math.sqrt(inside * outside)
            good = _goodput(middle, write_min, mtbf_min, restart_min) > floor
            inside, outside = (middle, outside) if good else (inside, middle)
        return inside

    return edge(0.5), edge(2.0)
