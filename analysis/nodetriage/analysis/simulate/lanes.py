"""Who runs where: each epoch deals the nodes out to lanes, and a lane runs one job after the other.

A lane is what one job occupies: whole nodes, or some GPUs of one. A fault on any node of a lane cuts its time line;
the job it cuts has failed. Since what a lane does up to a fault never looks ahead, failures over node-days keep the
planted rate.
"""

from dataclasses import dataclass

import numpy as np

from nodetriage.analysis.simulate.faults import Bools, Faults, Floats, Ints
from nodetriage.analysis.simulate.planted import EPOCH_DAYS, Fleet

_MINUTE = 1 / 1440
_SIGMA = 1.2  # of the lognormal run times: many short, few long


@dataclass(frozen=True, slots=True)
class Lanes:
    """By lane index. `members` are node indices, lane after lane; a node's lanes are a contiguous range."""

    gpus: Ints
    mean_run_days: Floats
    members: Ints
    member_counts: Ints
    node_first_lane: Ints
    node_lane_count: Ints


@dataclass(frozen=True, slots=True)
class Attempts:
    """Runs in order of lane and time; days from the epoch's start. `cut_by` is the fault that ended it, or -1."""

    lane: Ints
    start_day: Floats
    end_day: Floats
    cut_by: Ints
    reached_end: Bools


def deal(rng: np.random.Generator, fleet: Fleet) -> Lanes:
    """Deals shuffled nodes out so that each class gets its share of GPU time, on average over epochs."""
    order = rng.permutation(fleet.nodes).astype(np.int64)
    left_share, used = 1.0, 0
    gpus: list[Ints] = []
    means: list[Floats] = []
    members: list[Ints] = []
    counts: list[Ints] = []
    first, per_node = np.zeros(fleet.nodes, dtype=np.int64), np.zeros(fleet.nodes, dtype=np.int64)
    made = 0
    for size in fleet.sizes():
        width = max(1, -(-size.gpus // fleet.gpus_per_node))
        slots = max(1, fleet.gpus_per_node // size.gpus)  # lanes a node carries
        wanted = (fleet.nodes - used) * size.gpu_time_share / max(left_share, 1e-12) / width
        blocks = min(int(wanted + rng.random()), (fleet.nodes - used) // width)
        left_share -= size.gpu_time_share
        taken = order[used : used + blocks * width]
        used += blocks * width
        lanes = blocks * slots
        first[taken] = made + np.arange(taken.size) // width * slots
        per_node[taken] = slots
        gpus.append(np.full(lanes, size.gpus, dtype=np.int64))
        means.append(np.full(lanes, fleet.mean_run_days(size)))
        members.append(np.repeat(taken, slots) if width == 1 else taken)
        counts.append(np.full(lanes, width, dtype=np.int64))
        made += lanes
    return Lanes(
        gpus=np.concatenate(gpus),
        mean_run_days=np.concatenate(means),
        members=np.concatenate(members),
        member_counts=np.concatenate(counts),
        node_first_lane=first,
        node_lane_count=per_node,
    )


def run(rng: np.random.Generator, fleet: Fleet, lanes: Lanes, faults: Faults, days: float) -> Attempts:
    """Fills every lane from the start of the epoch to its end."""
    lane, begin, end, cut_by = _segments(rng, lanes, faults, days)
    mean = lanes.mean_run_days[lane]
    gap = mean * (1 - fleet.utilisation) / fleet.utilisation
    expected = (end - begin) / (mean + gap)
    counts = np.ceil(expected + 7 * np.sqrt(expected) + 4).astype(np.int64)
    row = np.repeat(np.arange(lane.size), counts)
    run_days = np.minimum(rng.lognormal(np.log(mean[row]) - _SIGMA**2 / 2, _SIGMA), EPOCH_DAYS)
    steps = run_days + rng.exponential(gap[row])
    total = np.cumsum(steps)
    before = np.concatenate([[0.0], total])[np.concatenate([[0], np.cumsum(counts)[:-1]])] if lane.size else total
    stop = begin[row] + total - before[row]
    start = stop - run_days
    keep = start < end[row] - 1e-6  # a job lives a tenth of a second at least
    row, start, stop = row[keep], start[keep], stop[keep]
    cut = stop >= end[row]
    return Attempts(
        lane=lane[row],
        start_day=start,
        end_day=np.minimum(stop, end[row]),
        cut_by=np.where(cut, cut_by[row], -1),
        reached_end=cut & (cut_by[row] < 0),
    )


def _segments(rng: np.random.Generator, lanes: Lanes, faults: Faults, days: float) -> tuple[Ints, Floats, Floats, Ints]:
    """The stretches between faults: lane, begin, end, and the fault at the end (-1 for the epoch's end)."""
    touched = lanes.node_lane_count[faults.node]
    fault = np.repeat(np.arange(faults.node.size, dtype=np.int64), touched)
    within = np.arange(fault.size) - np.repeat(np.cumsum(touched) - touched, touched)
    lane = np.concatenate([np.arange(lanes.gpus.size), lanes.node_first_lane[faults.node[fault]] + within])
    at = np.concatenate([np.zeros(lanes.gpus.size), faults.at_day[fault]])
    cause = np.concatenate([np.full(lanes.gpus.size, -1, dtype=np.int64), fault])
    order = np.lexsort((at, lane))
    lane, at, cause = lane[order].astype(np.int64), at[order], cause[order]
    last = np.append(lane[1:] != lane[:-1], True)
    end = np.where(last, days, np.append(at[1:], days))
    cut_by = np.where(last, -1, np.append(cause[1:], -1))
    restart = np.where(cause < 0, 0.0, rng.exponential(10 * _MINUTE, size=at.size) + 5 * _MINUTE)
    begin = at + restart
    keep = begin < end
    return lane[keep], begin[keep], end[keep], cut_by[keep]
