"""What the checks report: the planted faults, and noise."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nodetriage.analysis.simulate.faults import Faults, Floats, Ints
from nodetriage.analysis.simulate.jobs import Runs
from nodetriage.analysis.simulate.lanes import Lanes
from nodetriage.analysis.simulate.planted import (
    APPLICATION_XIDS,
    DAY_US,
    KINDS,
    NOISE,
    SECOND_SIGHT,
    USER_XID,
    Fleet,
    Kind,
)

_MINUTE = 1 / 1440


def of_faults(
    rng: np.random.Generator, fleet: Fleet, names: pl.Series, faults: Faults, base_us: int
) -> tuple[pl.DataFrame, Ints]:
    """Events of the faults that a check sees, and by fault: 1 seen, 0 silent, 2 seen too late to be evidence."""
    silent = np.array([not k.check for k in KINDS])[faults.kind]
    late = rng.random(faults.node.size) < fleet.late_event_share
    offset = rng.uniform(-5, 3, size=faults.node.size) * _MINUTE
    offset = np.where(late, rng.uniform(10, 60, size=late.size) * _MINUTE, offset)
    seen = np.flatnonzero(~silent)
    at, kind, node = (faults.at_day + offset)[seen], faults.kind[seen], faults.node[seen]
    raised = _frame(rng, names, KINDS, node, at, kind, "raised", base_us)
    repair = rng.lognormal(np.log(0.15), 1.0, size=seen.size)
    cleared = raised.with_columns(
        at=pl.col("at") + pl.Series(repair * DAY_US).cast(pl.Int64).cast(pl.Duration("us")), kind=pl.lit("cleared")
    )
    # A GPU that leaves the bus is often seen by a second check as well.
    off_bus = np.array([k.category == SECOND_SIGHT.category for k in KINDS])[kind]
    both = np.flatnonzero(off_bus & (rng.random(seen.size) < SECOND_SIGHT.share))
    only = np.zeros(both.size, dtype=np.int64)
    second = _frame(rng, names, [SECOND_SIGHT], node[both], at[both] + 1e-5, only, "raised", base_us)
    return pl.concat([raised, cleared, second]), np.where(silent, 0, np.where(late, 2, 1)).astype(np.int64)


def of_users(
    rng: np.random.Generator, fleet: Fleet, names: pl.Series, lanes: Lanes, runs: Runs, base_us: int
) -> tuple[pl.DataFrame, Ints, Ints]:
    """Application Xids that failing programs print: events, the attempts, and the node each was printed on."""
    failing = np.flatnonzero(runs.user_failed & (rng.random(runs.job.size) < fleet.user_xid_share))
    lane = runs.attempts.lane[failing]
    first = (np.cumsum(lanes.member_counts) - lanes.member_counts)[lane]
    node = lanes.members[first + (rng.random(failing.size) * lanes.member_counts[lane]).astype(np.int64)]
    at = runs.attempts.end_day[failing] - rng.uniform(0, 1, size=failing.size) * _MINUTE
    which = rng.integers(len(APPLICATION_XIDS), size=failing.size)
    kinds = [USER_XID._replace(xid=x) for x in APPLICATION_XIDS]
    return _frame(rng, names, kinds, node, at, which, "raised", base_us), failing, node


def noise(rng: np.random.Generator, fleet: Fleet, names: pl.Series, days: float, base_us: int) -> pl.DataFrame:
    """Warnings and false alarms, on any node at any time."""
    count = rng.poisson(fleet.noise_per_1000_node_days / 1000 * fleet.nodes * days)
    kind = rng.choice(len(NOISE), size=count, p=[k.share for k in NOISE]).astype(np.int64)
    node, at = rng.integers(fleet.nodes, size=count), rng.uniform(0, days, size=count)
    return _frame(rng, names, NOISE, node, at, kind, "raised", base_us)


def _frame(
    rng: np.random.Generator,
    names: pl.Series,
    kinds: Sequence[Kind],
    node: Ints,
    at_day: Floats,
    kind: Ints,
    what: str,
    base_us: int,
) -> pl.DataFrame:
    def column(values: Sequence[str | int | None], dtype: pl.DataType | type[pl.DataType]) -> pl.Series:
        return pl.Series(values, dtype=dtype).gather(kind)

    numbered = np.array([k.component in ("gpu", "mlx5") for k in kinds])[kind]
    unit = pl.Series(np.where(numbered, rng.integers(8, size=node.size), -1))
    component = column([k.component for k in kinds], pl.String)
    return pl.DataFrame(
        {
            "node": names.gather(node),
            "at": pl.Series(base_us + (at_day * DAY_US).astype(np.int64)).cast(pl.Datetime("us", "UTC")),
            "kind": pl.repeat(what, node.size, eager=True, dtype=pl.String),
            "check": column([k.check for k in kinds], pl.String),
            "component": pl.select(
                pl.when(unit >= 0).then(component + "-" + unit.cast(pl.String)).otherwise(component)
            ).to_series(),
            "fault": column([k.fault for k in kinds], pl.String),
            "severity": column([int(k.severity) for k in kinds], pl.Int8),
            "xid": column([k.xid for k in kinds], pl.Int32),
        }
    )
