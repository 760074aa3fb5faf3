"""The job table of one epoch, from who ran where: ends, requeues, preemptions, and the columns of `jobs`."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nodetriage.analysis.simulate.faults import Bools, Faults, Ints
from nodetriage.analysis.simulate.lanes import Attempts, Lanes
from nodetriage.analysis.simulate.planted import DAY_US, EPOCH_DAYS, KINDS, Fleet
from nodetriage.analysis.tables import JOBS, TIME

_LARGE_GPUS = 256  # from here a requeued job may push others out
_GPUS_PER_PREEMPTION = 64
_PREEMPTABLE_AFTER_DAYS = 2 / 24

# How runs end that no hardware fault ended: shares after arXiv 2410.21680, figure 3.
_ENDS = (
    ("COMPLETED", "0:0", 0.660),
    ("FAILED", "1:0", 0.240),
    ("CANCELLED", "0:15", 0.092),
    ("TIMEOUT", "0:0", 0.006),
    ("OUT_OF_MEMORY", "0:125", 0.002),
)


@dataclass(frozen=True, slots=True)
class Runs:
    """What is decided about each attempt: its number (job), attempt, end, and which run preempted it (index or -1)."""

    attempts: Attempts
    job: Ints
    attempt: Ints
    end_kind: Ints  # index into _ENDS; without meaning where a fault or a preemption ended the run
    preemptor: Ints

    @property
    def failed(self) -> Bools:
        """True where a fault of the machine ended the run."""
        cut: Bools = self.attempts.cut_by >= 0
        return cut

    @property
    def user_failed(self) -> Bools:
        """True where the user's program failed."""
        states = np.array([e[0] for e in _ENDS])[self.end_kind]
        own: Bools = (states == "FAILED") & ~self.failed & (self.preemptor < 0) & ~self.attempts.reached_end
        return own


def decide(rng: np.random.Generator, lanes: Lanes, attempts: Attempts, first_job: int) -> Runs:
    """Preempts, requeues and numbers the attempts; job numbers begin at `first_job` and grow with time."""
    same_lane = np.append(False, attempts.lane[1:] == attempts.lane[:-1])
    requeues = rng.random(attempts.lane.size) < 0.9
    after_fault = same_lane & requeues & np.append(False, (attempts.cut_by >= 0)[:-1])
    pushes = (lanes.gpus[attempts.lane] >= _LARGE_GPUS) & (after_fault | (rng.random(attempts.lane.size) < 0.1))
    attempts, preemptor = _preempt(rng, lanes, attempts, np.flatnonzero(pushes))
    after_push = same_lane & requeues & np.append(False, (preemptor >= 0)[:-1])
    fresh = ~(after_fault | after_push)
    begins = np.flatnonzero(fresh)
    serial = np.cumsum(fresh) - 1
    rank = np.empty(begins.size, dtype=np.int64)
    rank[np.argsort(attempts.start_day[begins], kind="stable")] = np.arange(begins.size)
    return Runs(
        attempts=attempts,
        job=first_job + rank[serial],
        attempt=np.arange(fresh.size, dtype=np.int64) - begins[serial] if begins.size else serial,
        end_kind=rng.choice(len(_ENDS), size=fresh.size, p=[e[2] for e in _ENDS]).astype(np.int64),
        preemptor=preemptor,
    )


def _preempt(rng: np.random.Generator, lanes: Lanes, attempts: Attempts, pushes: Ints) -> tuple[Attempts, Ints]:
    """Each of `pushes` ends some small runs at its own start; returns the runs and, by run, who ended it."""
    start, end = attempts.start_day, attempts.end_day.copy()
    preemptor = np.full(start.size, -1, dtype=np.int64)
    open_to_it = (lanes.member_counts[attempts.lane] == 1) & (attempts.cut_by < 0)
    small = np.flatnonzero(open_to_it & (end - start > _PREEMPTABLE_AFTER_DAYS))
    for index in pushes[np.argsort(start[pushes])]:
        now = start[index]
        running = small[(start[small] < now - _PREEMPTABLE_AFTER_DAYS) & (end[small] > now)]
        wanted = rng.poisson(lanes.gpus[attempts.lane[index]] / _GPUS_PER_PREEMPTION)
        chosen = rng.permutation(running)[:wanted]
        end[chosen], preemptor[chosen] = now, index
    return replace(attempts, end_day=end, reached_end=attempts.reached_end & (preemptor < 0)), preemptor


def table(
    rng: np.random.Generator, fleet: Fleet, names: pl.Series, lanes: Lanes, faults: Faults, runs: Runs, epoch: int
) -> pl.DataFrame:
    """`runs` with the columns of the job table; the last epoch leaves its unfinished jobs RUNNING."""
    a, size = runs.attempts, runs.job.size
    gpus = lanes.gpus[a.lane]
    wait_day = rng.exponential(6 / 1440, size=size) * (1 + gpus / 256)
    state, exit_code = _ends(fleet, faults, runs, epoch)
    job_id = _job_ids(runs.job)
    base = epoch_start_us(fleet, epoch)
    # All attempts of a job are of one user; their numbers follow one another.
    user = (rng.zipf(1.3, size=size) % 200)[runs.job % max(size, 1)]
    frame = pl.DataFrame(
        {
            "job_id": job_id,
            "attempt": (runs.attempt + 1).astype(np.int32),
            "user": user,
            "state": state,
            "exit_code": exit_code,
            "submit_at": base + ((a.start_day - wait_day) * DAY_US).astype(np.int64),
            "start_at": base + (a.start_day * DAY_US).astype(np.int64),
            "end_at": base + (a.end_day * DAY_US).astype(np.int64),
            "nodes": member_lists(names, lanes).gather(a.lane),
            "node_count": lanes.member_counts[a.lane].astype(np.int32),
            "gpus": gpus.astype(np.int32),
            "excluded_nodes": _exclusions(rng, names, size),
            "preempted_by": _gather(job_id, runs.preemptor),
        }
    )
    return _finish(frame)


def epoch_start_us(fleet: Fleet, epoch: int) -> int:
    """Microseconds since 1970 at which an epoch begins."""
    return int(fleet.start.timestamp() * 1_000_000) + epoch * EPOCH_DAYS * DAY_US


def member_lists(names: pl.Series, lanes: Lanes) -> pl.Series:
    """By lane: the list of its nodes' names."""
    lane = np.repeat(np.arange(lanes.gpus.size), lanes.member_counts)
    pairs = pl.DataFrame({"lane": lane, "name": names.gather(lanes.members)})
    return pairs.group_by("lane", maintain_order=True).agg("name").get_column("name")


def _job_ids(job: Ints) -> pl.Series:
    # One job in twenty is a task of an array, as sacct writes it.
    number = pl.col("job").cast(pl.String)
    array = number + "_" + (pl.col("job") // 20 % 7).cast(pl.String)
    picked = pl.when(pl.col("job") % 20 == 0).then(array).otherwise(number)
    return pl.DataFrame({"job": job}).select(picked.alias("job_id")).get_column("job_id")


def _ends(fleet: Fleet, faults: Faults, runs: Runs, epoch: int) -> tuple[pl.Series, pl.Series]:
    states = [e[0] for e in _ENDS] + ["PREEMPTED", "RUNNING"] + [k.state for k in KINDS]
    codes = [e[1] for e in _ENDS] + ["0:0", "0:0"] + ["1:0" if k.state == "FAILED" else "0:0" for k in KINDS]
    preempted, running = len(_ENDS), len(_ENDS) + 1
    last = (epoch + 1) * EPOCH_DAYS >= fleet.days
    pick = np.where(runs.preemptor >= 0, preempted, runs.end_kind)
    pick = np.where(runs.attempts.reached_end & last, running, pick)
    kind = faults.kind[np.maximum(runs.attempts.cut_by, 0)] if faults.kind.size else np.zeros_like(pick)
    pick = np.where(runs.failed, running + 1 + kind, pick)
    return pl.Series(states).gather(pick), pl.Series(codes).gather(pick)


def _exclusions(rng: np.random.Generator, names: pl.Series, size: int) -> pl.Series:
    """One job in two hundred excludes a node, mostly without a reason."""
    distrusted = np.where(rng.random(size) < 0.005, rng.integers(len(names), size=size), -1)
    lists = pl.concat([names.reshape((-1, 1)).arr.to_list(), pl.Series([[]], dtype=pl.List(pl.String))])
    return lists.gather(np.where(distrusted < 0, len(names), distrusted))


def _gather(values: pl.Series, index: Ints) -> pl.Series:
    filled = values.gather(np.maximum(index, 0))
    return pl.select(pl.when(pl.Series(index) >= 0).then(filled)).to_series()


def _finish(frame: pl.DataFrame) -> pl.DataFrame:
    big, small = pl.col("gpus") >= _LARGE_GPUS, pl.col("gpus") < 8
    qos = pl.when(big).then(pl.lit("high")).when(small).then(pl.lit("low")).otherwise(pl.lit("normal"))
    name = pl.when(small).then(pl.lit("notebook")).when(big).then(pl.lit("pretrain")).otherwise(pl.lit("finetune"))
    return frame.with_columns(
        cluster=pl.lit(None, dtype=pl.String),
        failed_node=pl.lit(None, dtype=pl.String),
        failed_steps=pl.lit(None, dtype=pl.Int32),
        name=name,
        user=pl.lit("user") + pl.col("user").cast(pl.String).str.zfill(3),
        partition=pl.lit("gpu"),
        qos=qos,
        submit_at=pl.col("submit_at").cast(TIME),
        eligible_at=(pl.col("submit_at") + 1_000_000).cast(TIME),
        start_at=pl.col("start_at").cast(TIME),
        end_at=pl.when(pl.col("state") != "RUNNING").then(pl.col("end_at").cast(TIME)),
        restarts=pl.col("attempt") - 1,
    ).select(*JOBS)
