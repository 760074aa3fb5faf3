"""Planted faults: Poisson on each node, with lemons, and racks that fail as one."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nodetriage.analysis.simulate.planted import KINDS, Fleet

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes, by index: `hazard_per_day` is each node's own, `rack` and `switch` where it stands."""

    hazard_per_day: Floats
    lemon: Bools
    rack: Ints
    switch: Ints


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of one epoch, one row each, in order of time. `rack_event` is -1 where the node failed alone."""

    node: Ints
    at_day: Floats
    kind: Ints
    rack_event: Ints


def nodes(rng: np.random.Generator, fleet: Fleet) -> Nodes:
    """Chooses the lemons; the mean hazard over the fleet is the planted rate exactly."""
    lemons = round(fleet.lemon_share * fleet.nodes)
    lemon = np.zeros(fleet.nodes, dtype=np.bool_)
    lemon[rng.choice(fleet.nodes, size=lemons, replace=False)] = True
    weight = np.where(lemon, fleet.lemon_hazard_ratio, 1.0)
    rack = np.arange(fleet.nodes, dtype=np.int64) // fleet.nodes_per_rack
    return Nodes(
        hazard_per_day=fleet.rf_per_1000_node_days / 1000 * weight / weight.mean(),
        lemon=lemon,
        rack=rack,
        switch=rack // fleet.racks_per_switch,
    )


def draw(rng: np.random.Generator, fleet: Fleet, well: Nodes, days: float) -> Faults:
    """The faults of `days` days, times counted from their beginning."""
    counts = rng.poisson(well.hazard_per_day * days)
    node = np.repeat(np.arange(fleet.nodes, dtype=np.int64), counts)
    at = rng.uniform(0, days, size=node.size)
    kind = rng.choice(len(KINDS), size=node.size, p=[k.share for k in KINDS]).astype(np.int64)
    racked = _rack_events(rng, fleet, well, days)
    node, at = np.concatenate([node, racked.node]), np.concatenate([at, racked.at_day])
    kind = np.concatenate([kind, racked.kind])
    rack_event = np.concatenate([np.full(counts.sum(), -1, dtype=np.int64), racked.rack_event])
    order = np.argsort(at, kind="stable")
    return Faults(node[order], at[order], kind[order], rack_event[order])


def _rack_events(rng: np.random.Generator, fleet: Fleet, well: Nodes, days: float) -> Faults:
    racks = int(well.rack[-1]) + 1
    count = rng.poisson(fleet.rack_events_per_1000_rack_days / 1000 * racks * days)
    struck, when = rng.integers(racks, size=count), rng.uniform(0, days, size=count)
    # A rack that loses power or its switch shows as link faults or as silence, never as a GPU fault.
    kinds = [i for i, k in enumerate(KINDS) if k.category in ("node_lost", "ib_link")]
    kind = rng.choice(kinds, size=count)
    members = [np.flatnonzero(well.rack == r) for r in struck]
    sizes = np.array([len(m) for m in members], dtype=np.int64)
    return Faults(
        node=np.concatenate([*members, np.empty(0, dtype=np.int64)]),
        at_day=np.repeat(when, sizes),
        kind=np.repeat(kind, sizes).astype(np.int64),
        rack_event=np.repeat(np.arange(count, dtype=np.int64), sizes),
    )
