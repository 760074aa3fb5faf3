"""The tables of policy.toml that protect the fleet from the controller: drain limits, breaker, common mode, lemons."""

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Literal


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """How many nodes the controller drains anew. A node in repair counts in the repair pool instead.

    A percentage never forbids the first node.
    """

    max_drains_per_hour: int = 10  # of the fleet; a node that is drained twice counts once
    max_nodes: int = 50  # newly drained at once: drained by us, and not in the repair pool
    max_percent: float = 5.0  # the same, of the fleet
    partition_max_nodes: int = 50  # the same, of one partition
    partition_max_percent: float = 10.0
    partition_max_drains_per_hour: int = 0  # of one partition; 0: no limit of its own
    reservation_min_percent: float = 90.0  # of the nodes of a running reservation that must stay usable
    reservation_min_nodes: Mapping[str, int] = field(default_factory=dict)  # the same, for a reservation by its name
    witnessed_max_drains_per_hour: int = 50  # of nodes whose hardware fault is witnessed; apart from all others
    witnessed_max_nodes: int = 100  # newly drained at once, for witnessed faults
    witnessed_max_percent: float = 20.0  # the same, of the fleet and of each partition
    repair_after_s: float = 14400.0  # a node drained for so long, or with a ticket, moves to the repair pool
    repair_max_nodes: int = 200  # size of the repair pool; a node beyond it counts as newly drained
    repair_max_percent: float = 10.0  # the same, of the fleet
    resumed_backoff_s: float = 300.0  # before the third drain of a node that others resume; doubled with each more
    held_notice_s: float = 3600.0  # how often a notice repeats a critical finding that is held

    def __post_init__(self) -> None:
        numbers = (self.max_drains_per_hour, self.max_nodes, self.partition_max_nodes, self.repair_max_nodes)
        more = (self.partition_max_drains_per_hour, self.witnessed_max_drains_per_hour, self.witnessed_max_nodes)
        if min(*numbers, *more) < 0:
            raise ValueError("expected limits of at least 0")
        if min(self.repair_after_s, self.resumed_backoff_s) < 0 or self.held_notice_s < 60:
            raise ValueError("expected times of at least 0, and held_notice_s of at least 60")
        _percents(self.max_percent, self.partition_max_percent, self.reservation_min_percent)
        _percents(self.witnessed_max_percent, self.repair_max_percent)

    def least_of(self, reservation: str, nodes: int) -> int:
        """How many of its nodes a running reservation keeps."""
        return self.reservation_min_nodes.get(reservation, ceil(nodes * self.reservation_min_percent / 100))

    def repair_pool(self, fleet: int) -> int:
        """How many nodes the repair pool holds."""
        return min(self.repair_max_nodes, share(fleet, self.repair_max_percent))


def share(size: int, percent: float) -> int:
    """So many of `size` nodes; never fewer than one, but for a percentage of 0."""
    return 0 if percent == 0 else max(1, int(size * percent / 100))


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """Beyond any of these within the window the controller stops draining and requeueing until a person says go on."""

    window_s: float = 600.0
    least_nodes: int = 5  # a percentage of fewer nodes opens nothing
    max_failing_nodes: int = 100  # that are to be drained for faults of less than the window ago
    max_failing_percent: float = 20.0  # the same, of the fleet
    max_actions: int = 200  # drains and requeues
    max_scheduler_outages: int = 20  # an outage counts once, however long it is
    max_silent_nodes: int = 100  # whose agents fell silent
    max_silent_percent: float = 20.0

    def __post_init__(self) -> None:
        if self.window_s <= 0 or self.least_nodes < 1:
            raise ValueError("expected window_s above 0 and least_nodes of at least 1")
        _percents(self.max_failing_percent, self.max_silent_percent)

    def failing_limit(self, fleet: int) -> int:
        return min(self.max_failing_nodes, self._share(fleet, self.max_failing_percent))

    def silent_limit(self, fleet: int) -> int:
        return min(self.max_silent_nodes, self._share(fleet, self.max_silent_percent))

    def _share(self, fleet: int, percent: float) -> int:
        return max(self.least_nodes, ceil(fleet * percent / 100))


SHARED = ("mount_*", "reach_*", "ib_*", "eth_*", "clock_*", "node_lost", "gpu_fabric_*", "gpu_nvlink_*")


@dataclass(frozen=True, slots=True)
class CommonMode:
    """One fault on so many nodes within the window is one incident of the fleet, and drains none of them."""

    enabled: bool = True
    window_s: float = 600.0
    min_nodes: int = 10  # of the fleet
    min_percent: float = 5.0  # or of the fleet by share, but no fewer than least_nodes
    least_nodes: int = 4
    shared_min_nodes: int = 3  # of the nodes that share a switch, a rack, a mount source, an agent's version, ...
    shared_min_percent: float = 25.0  # and at least this share of them
    own_min_nodes: int = 50  # of the fleet, for a fault of the nodes' own hardware where they share nothing
    own_min_percent: float = 10.0  # or so many by share, but no fewer than own_least_nodes
    own_least_nodes: int = 10
    end_s: float = 300.0  # how long the count must have been below half of what opened it
    longest_s: float = 604800.0  # then it ends in any case
    own_longest_s: float = 7200.0  # the same, for a fault of the nodes' own hardware
    shared_faults: tuple[str, ...] = SHARED  # whose cause is often shared
    shared_hold_s: float = 45.0  # and each of them waits so long for others to say the same
    new_version_s: float = 86400.0  # so long an agent's version counts as new, where another was there before it
    new_version_hold_s: float = 300.0  # and what such an agent finds waits so long for others to say the same

    def __post_init__(self) -> None:
        if min(self.min_nodes, self.least_nodes, self.shared_min_nodes, self.own_min_nodes, self.own_least_nodes) < 2:
            raise ValueError("expected min_nodes, least_nodes, shared_min_nodes and the own_ numbers of at least 2")
        if min(self.longest_s, self.own_longest_s) <= 0:
            raise ValueError("expected longest_s and own_longest_s of more than 0: an incident ends")
        if min(self.window_s, self.end_s, self.shared_hold_s, self.new_version_s, self.new_version_hold_s) < 0:
            raise ValueError("expected times of at least 0")
        _percents(self.min_percent, self.shared_min_percent, self.own_min_percent)

    def settle_s(self, fault: str) -> float:
        """How long a fault is to wait for others; 0 where its cause is the node's own."""
        return self.shared_hold_s if self.enabled and self.is_shared(fault) else 0.0

    def is_shared(self, fault: str) -> bool:
        """Whether the cause of the fault often lies outside the node."""
        return _matches(fault, self.shared_faults)

    def fleet_limit(self, fleet: int, fault: str) -> int:
        """So many nodes with one fault are an incident although nothing is known that they share."""
        if not self.is_shared(fault):
            return max(self.own_least_nodes, min(self.own_min_nodes, ceil(fleet * self.own_min_percent / 100)))
        return min(self.min_nodes, max(self.least_nodes, ceil(fleet * self.min_percent / 100)))

    def place_limit(self, members: int) -> int:
        return max(self.shared_min_nodes, ceil(members * self.shared_min_percent / 100))


@dataclass(frozen=True, slots=True)
class Lemons:
    """A node that was removed so often is not taken back automatically."""

    max_removals: int = 3  # drains of ours within the window; the last of them makes it a lemon. 0: never
    window_s: float = 2592000.0  # 30 days
    max_nodes: int = 20  # no more than so many at once; a node beyond comes and goes as before
    max_percent: float = 2.0  # of the fleet, at once; never forbids the first
    evidence: Literal["shadow", "enforce"] = "shadow"  # what the verdict of a study of the history does

    def __post_init__(self) -> None:
        if min(self.max_removals, self.max_nodes) < 0 or self.window_s < 0:
            raise ValueError("expected numbers of at least 0")
        _percents(self.max_percent)

    def most(self, fleet: int) -> int:
        return min(self.max_nodes, max(1, int(fleet * self.max_percent / 100)))


@dataclass(frozen=True, slots=True)
class HookLimits:
    """What the nodes' prologs and epilogs may do on their own. A refused job costs its node: Slurm drains it."""

    mode: Literal["observe", "enforce"] = "observe"  # enforce needs the policy's own mode to be enforce as well
    max_nodes: int = 3  # whose hooks may refuse jobs, within the window
    window_s: float = 3600.0
    valid_s: float = 300.0  # how long a node relies on the controller's last word to its hooks

    def __post_init__(self) -> None:
        if self.max_nodes < 0 or self.window_s <= 0:
            raise ValueError("expected max_nodes of at least 0 and window_s above 0")
        if not 10 <= self.valid_s <= 3600:
            raise ValueError(f"expected valid_s of 10 to 3600, got {self.valid_s:g}")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How long an operator's maintenance of a node lasts."""

    default_s: float = 86400.0  # where no end is given
    longest_s: float = 2592000.0  # no end lies further ahead

    def __post_init__(self) -> None:
        if not 0 < self.default_s <= self.longest_s:
            raise ValueError("expected default_s above 0 and no more than longest_s")


@dataclass(frozen=True, slots=True)
class Shadow:
    """What only says what it would do, until its owner trusts it."""

    checks: tuple[str, ...] = ()  # every fault that these checks report
    faults: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()  # faults that may act though faults.toml does not know or does not trust them


@functools.lru_cache(maxsize=4096)
def _matches(fault: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(fault, pattern) for pattern in patterns)


def _percents(*values: float) -> None:
    if not all(0 <= value <= 100 for value in values):
        raise ValueError("expected percentages from 0 to 100")
