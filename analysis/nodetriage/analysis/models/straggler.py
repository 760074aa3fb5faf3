"""What the slowest of many costs: a synchronous step takes as long as its slowest rank."""

import math

import numpy as np

from nodetriage.analysis.models.figure import Figure, not_negative, positive


def expected_maximum_sigmas(ranks: int) -> Figure:
    """Expected maximum of so many standard normal draws: the integral of x N phi(x) Phi(x)^(N-1). OutOfDomain.

    sqrt(2 ln N) is an upper bound, 13 % too high at 2,048 ranks.
    """
    from scipy.special import log_ndtr

    positive(ranks=ranks)
    # The integrand is smooth and vanishes at both ends, where the plain sum over a fine grid is exact to many digits.
    x, step = np.linspace(-12.0, 14.0, 26_001, retstep=True)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    value = float(np.sum(x * ranks * density * np.exp((ranks - 1) * log_ndtr(x))) * step)
    return Figure("expected slowest rank", value, "standard deviations")


def asymptotic_maximum_sigmas(ranks: int) -> Figure:
    """sqrt(2 ln N), the bound that is often quoted. Raises OutOfDomain."""
    positive(ranks=ranks)
    note = "an upper bound; the exact expectation is lower"
    return Figure("slowest rank, bound", math.sqrt(2 * math.log(ranks)), "standard deviations", notes=(note,))


def all_avoid_slow_nodes(slow_share: float, nodes: int) -> Figure:
    """Chance that a job on so many nodes meets no slow one, (1 - p)^N. Raises OutOfDomain."""
    positive(nodes=nodes)
    not_negative(slow_share=slow_share, rest=1 - slow_share)
    return Figure("chance of no slow node", (1 - slow_share) ** nodes, "probability")
