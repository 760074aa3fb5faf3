"""ETTR by Monte Carlo: runs played out failure by failure, nothing linearised."""

import math
from dataclasses import dataclass

import numpy as np

from nodetriage.analysis.models import interruptions
from nodetriage.analysis.models.figure import Figure, OutOfDomain
from nodetriage.analysis.models.interruptions import Run

_MOST_RUNS = 1_000_000
_MOST_FAILURES = 1e9


@dataclass(frozen=True, slots=True)
class Trials:
    """`ettr` is E[R/W] with its 95 % interval, `interruptions` per run, `spread` the deviation of single runs' R/W."""

    ettr: Figure
    interruptions: Figure
    spread: Figure
    runs: int


def play(run: Run, runs: int = 20_000, seed: int = 1) -> Trials:
    """Plays `runs` independent runs. Failures strike at any time outside the queue; queue times are exponential.

    `productive_min` is rounded to whole segments. Raises OutOfDomain where the run is endless or hopeless.
    """
    if not 2 <= runs <= _MOST_RUNS:
        raise OutOfDomain(f"runs: expected 2 to {_MOST_RUNS}, got {runs}")
    segments = max(1, round(run.finite_productive_min() / run.checkpoint_interval_min))
    rate, segment = run.failures_per_min, run.checkpoint_interval_min + run.checkpoint_write_min
    if rate * (segment + run.restart_min) > 10:
        raise OutOfDomain("a segment and its restart last over 10 MTTFs: the run would fail tens of thousands of times")
    expected = interruptions.exact(run).value
    if expected * runs > _MOST_FAILURES:
        raise OutOfDomain(f"{runs} runs of {expected:.3g} failures each would take hours: use the exact form")
    rng = np.random.default_rng(seed)
    failures, running = _play(rng, runs, segments, segment, run.restart_min, rate)
    queued = rng.gamma(failures + 1, run.queue_min) if run.queue_min > 0 else np.zeros(runs)
    ratio = segments * run.checkpoint_interval_min / (running + queued)
    return Trials(
        ettr=_mean("ETTR, Monte Carlo", ratio, "share of wall time"),
        interruptions=_mean("interruptions, Monte Carlo", failures.astype(np.float64), "interruptions"),
        spread=Figure("ETTR, spread of single runs", float(ratio.std(ddof=1)), "share of wall time"),
        runs=runs,
    )


def _play(
    rng: np.random.Generator, runs: int, segments: int, segment_min: float, restart_min: float, rate: float
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    """Failures and minutes outside the queue, by run. One round of the loop is one start of every unfinished run."""
    failures, minutes = np.zeros(runs, dtype=np.int64), np.zeros(runs)
    left = np.full(runs, segments, dtype=np.int64)
    alive = np.arange(runs)
    while alive.size:
        until_failure = rng.exponential(1 / rate, size=alive.size) if rate else np.full(alive.size, math.inf)
        need = restart_min + left[alive] * segment_min
        done = until_failure >= need
        minutes[alive] += np.where(done, need, until_failure)
        # Only what a finished write has saved counts; the segment that the failure cut is played again.
        saved = np.floor(np.maximum(np.where(done, 0, until_failure) - restart_min, 0) / segment_min).astype(np.int64)
        left[alive] -= saved
        failures[alive] += ~done
        alive = alive[~done]
    return failures, minutes


def _mean(name: str, values: "np.ndarray[tuple[int], np.dtype[np.float64]]", unit: str) -> Figure:
    mean, half = float(values.mean()), 1.96 * float(values.std(ddof=1)) / math.sqrt(values.size)
    note = f"95 % interval {mean - half:.6g} to {mean + half:.6g} over {values.size} runs"
    return Figure(name, mean, unit, notes=(note,))
