"""How many checkpoints to keep so that one older than a silent corruption survives until it is noticed."""

import math

from nodetriage.analysis.figure import Figure, positive


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
