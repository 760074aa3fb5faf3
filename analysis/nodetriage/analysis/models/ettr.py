"""Effective training time ratio E[R/(R+U+Q)] as a model: two closed forms of arXiv 2410.21680, and the exact form.

R is productive time, U unproductive (restarts, rework, checkpoint writes), Q queue time. Equations 1 and 2 ignore that
failures strike checkpoint writes too; they are approximations, not bounds.
"""

import math

from nodetriage.analysis.models.figure import Figure, OutOfDomain
from nodetriage.analysis.models.interruptions import Run, exact_running_min


def equation_1(run: Run) -> Figure:
    """[1 - l(u0 + dt/2)] / [1 + (u0+q)/R + w/dt + l q (1 + w/dt - dt/(2R))], l = N rf. Raises OutOfDomain."""
    notes = run.linear_notes()
    rate, stall, work = run.failures_per_min, _stall(run), run.productive_min
    waits = rate * run.queue_min * (1 + stall - run.rework_min / work)
    value = (1 - run.strain) / (1 + (run.restart_min + run.queue_min) / work + stall + waits)
    return Figure("ETTR, equation 1", value, "share of wall time", notes=notes)


def equation_2(run: Run) -> Figure:
    """[1 - l(u0 + dt/2)] / (1 + w/dt): no queue, a run without end. Raises OutOfDomain."""
    value = (1 - run.strain) / (1 + _stall(run))
    return Figure("ETTR, equation 2", value, "share of wall time", notes=run.linear_notes())


def exact(run: Run) -> Figure:
    """R/E[W] for Poisson failures with restarts and writes exposed; W = T + q (1 + T/M). Raises OutOfDomain.

    Holds at any rate. E[R/W] lies above it by at most a tenth of a percent.
    """
    if math.isinf(run.productive_min):
        return Figure("ETTR, exact", _exact_limit(run), "share of wall time")
    running = exact_running_min(run)
    wall = running + run.queue_min * (1 + running * run.failures_per_min)
    return Figure("ETTR, exact", run.productive_min / wall, "share of wall time")


def optimal_interval_min(nodes: float, rf_per_1000_node_days: float, checkpoint_write_min: float) -> float:
    """dt* = sqrt(2 w / (N rf)), the interval at which equation 2 is greatest to first order. Raises OutOfDomain."""
    run = Run(nodes, rf_per_1000_node_days, checkpoint_write_min=checkpoint_write_min)
    if run.failures_per_min == 0 or checkpoint_write_min == 0:
        raise OutOfDomain("the best interval needs a rate and a checkpoint write time above 0")
    return math.sqrt(2 * checkpoint_write_min / run.failures_per_min)


def equation_2_at_best(
    nodes: float, rf_per_1000_node_days: float, restart_min: float, checkpoint_write_min: float
) -> Figure:
    """Equation 2 at its best interval; with a write time of 0 its limit 1 - N rf u0. Raises OutOfDomain."""
    if checkpoint_write_min == 0:
        limit = 1 - Run(nodes, rf_per_1000_node_days).failures_per_min * restart_min
        if limit <= 0:
            raise OutOfDomain(f"N rf x restart is {1 - limit:.3g}: expected below 1")
        return Figure("ETTR, equation 2, limit of no write time", limit, "share of wall time")
    interval = optimal_interval_min(nodes, rf_per_1000_node_days, checkpoint_write_min)
    return equation_2(Run(nodes, rf_per_1000_node_days, restart_min, checkpoint_write_min, interval))


def _stall(run: Run) -> float:
    return run.checkpoint_write_min / run.checkpoint_interval_min


def _exact_limit(run: Run) -> float:
    run.refuse_other_rework()
    rate, segment = run.failures_per_min, run.checkpoint_interval_min + run.checkpoint_write_min
    if rate == 0:
        return run.checkpoint_interval_min / segment
    try:
        growth = math.exp(run.restart_min * rate) * math.expm1(segment * rate)
    except OverflowError as error:
        raise OutOfDomain("the run never ends: a restart or a segment is hundreds of MTTFs long") from error
    return run.checkpoint_interval_min * rate / (growth * (1 + run.queue_min * rate))
