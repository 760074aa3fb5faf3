"""How many checkpoints to keep so that one older than a silent corruption still exists when it is noticed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from nodetriage.analysis.models.figure import Figure, OutOfDomain, positive


def copies_guaranteed(detection_latency_min: float, checkpoint_interval_min: float) -> Figure:
    """K = ceil(L / tau) + 1. Raises OutOfDomain.

    K tau >= L is not enough: just after a save, the oldest of K copies is only (K - 1) tau old.
    """
    positive(detection_latency_min=detection_latency_min, checkpoint_interval_min=checkpoint_interval_min)
    necessary = math.ceil(detection_latency_min / checkpoint_interval_min)
    note = f"{necessary} would do only where the corruption is noticed just before a save"
    return Figure("checkpoints to keep", necessary + 1, "copies", notes=(note,))


def rollback_min(detection_latency_min: float, checkpoint_interval_min: float, restart_min: float) -> Figure:
    """The most that one silent corruption costs: restart + latency + up to one interval. Raises OutOfDomain."""
    positive(detection_latency_min=detection_latency_min, checkpoint_interval_min=checkpoint_interval_min)
    positive(restart_min=restart_min)
    value = restart_min + detection_latency_min + checkpoint_interval_min
    return Figure("cost of one silent corruption, at most", value, "min")


@dataclass(frozen=True, slots=True)
class Rollback:
    """Which of the kept checkpoints to go back to, all as minutes before the corruption was noticed.

    `to_min` is the newest that is surely clean, None where none is old enough; `suspect_min` are younger ones.
    """

    to_min: float | None
    suspect_min: tuple[float, ...]


def roll_back(saved_min_ago: Iterable[float], detection_latency_min: float) -> Rollback:
    """A checkpoint is clean if it was finished before the corruption can have begun. Raises OutOfDomain."""
    positive(detection_latency_min=detection_latency_min)
    ages = sorted(saved_min_ago)
    if any(not age >= 0 for age in ages):
        raise OutOfDomain("saved_min_ago: expected minutes of 0 or more")
    clean = [age for age in ages if age >= detection_latency_min]
    return Rollback(clean[0] if clean else None, tuple(a for a in ages if a < detection_latency_min))
