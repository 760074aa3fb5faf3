"""Whether failures come one by one or in bursts: the intervals of a Poisson count hold for the former alone."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_SIGNIFICANT = 0.01
_EVENTS_PER_BIN = 5  # the chi-square test needs about so many expected in each bin


@dataclass(frozen=True, slots=True)
class Burst:
    """`cv` is that of the times between events (1 for Poisson), `dispersion` variance over mean of counts per bin.

    `p_value` is the chance of so much dispersion in a Poisson process; None where there are too few events to tell.
    """

    events: int
    cv: float | None
    dispersion: float | None
    p_value: float | None

    @property
    def bursty(self) -> bool:
        """True where chance does not explain the clustering."""
        return self.p_value is not None and self.p_value < _SIGNIFICANT

    @property
    def widening(self) -> float:
        """What intervals are to be widened by: the dispersion where bursty, else 1."""
        return max(1.0, self.dispersion or 1.0) if self.bursty else 1.0


def interarrival_cv(times: Floats) -> float | None:
    """Deviation over mean (n - 1) of the gaps between events in any unit; None with fewer than three events."""
    if times.size < 3:
        return None
    gaps = np.diff(np.sort(times))
    mean = float(gaps.mean())
    return float(gaps.std(ddof=1)) / mean if mean > 0 else math.inf


def test(times_day: Floats, daily_exposure: Floats) -> Burst:
    """Tests events at `times_day` (days from the window's start) against exposure day by day, in any unit.

    Days are joined to bins of equal exposure, so that a fleet that grew is no burst.
    """
    cv = interarrival_cv(times_day)
    total, events = float(daily_exposure.sum()), int(times_day.size)
    bins = min(60, events // _EVENTS_PER_BIN, daily_exposure.size)
    if bins < 3 or total <= 0:
        return Burst(events, cv, None, None)
    from scipy.stats import chi2

    cumulative = np.concatenate([[0.0], np.cumsum(daily_exposure)])
    edges = np.interp(np.linspace(0, total, bins + 1), cumulative, np.arange(cumulative.size, dtype=np.float64))
    counts = np.histogram(times_day, bins=edges)[0]
    expected = events / bins
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return Burst(events, cv, statistic / (bins - 1), float(chi2.sf(statistic, bins - 1)))
