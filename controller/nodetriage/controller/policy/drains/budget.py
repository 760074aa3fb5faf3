"""What the limits leave for new drains: by the hour, and by how many nodes are newly drained. Pure."""

from collections import Counter
from datetime import timedelta
from typing import NamedTuple

from nodetriage.checks.model import Confidence
from nodetriage.controller.policy.breaker import fleet_size
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.fleet_state import AdmittedDrain
from nodetriage.controller.policy.state import DrainFact, FindingFact, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import DrainLimits, share

HOUR = timedelta(hours=1)


class _Allowed(NamedTuple):
    per_hour: int | None  # None: no limit
    nodes: int
    percent: float


def is_witnessed(finding: FindingFact) -> bool:
    return finding.confidence >= Confidence.WITNESSED


class Budget:
    """Counts a unit of work's drains. Drains for witnessed faults and all others are counted apart."""

    def __init__(self, work: UnitOfWork, limits: DrainLimits) -> None:
        self._limits, self._fleet = limits, work.fleet
        last = {a.node: a for a in work.fleet.admitted if abs(work.now - a.at) < HOUR}
        self.admitted = tuple(a for a in last.values() if (n := work.node(a.node)) is not None and repair.counts(n))
        self._hour = Counter((a.witnessed, area) for a in self.admitted for area in ("", *a.partitions))
        self._known, _ = work.counts()
        size = fleet_size(work.fleet) if work.fleet.sizes else self._known
        out = [n for n in work.out() if repair.is_out(n)]
        pool = {n.node for n in repair.pool(out, work.now, limits, size)}
        self._pool_is_full = len(pool) >= limits.repair_pool(size)
        self._out: Counter[tuple[bool, str]] = Counter()
        for node in out:
            if node.node not in pool:
                self._count_out(node)

    def over(self, node: NodeFacts, drain: DrainFact) -> str:
        """The first limit that this drain would break, as text that stays the same while it holds; "" if none."""
        again = any(a.node == node.node for a in self.admitted)
        what = "drains for witnessed faults" if drain.witnessed else "drains"
        for area in ("", *node.partitions):
            allowed = self._allowed(area, drain)
            of = f"partition {area}" if area else "the fleet"
            used = self._out[drain.witnessed, area]
            if allowed.per_hour is not None and not again and self._hour[drain.witnessed, area] >= allowed.per_hour:
                return f"limit reached: {allowed.per_hour} {what} an hour{f' of {of}' if area else ''}"
            size = self._fleet.sizes.get(area, self._known)
            most = share(size, allowed.percent)
            repairs = "; the repair pool is full" if self._pool_is_full else ""
            if used >= allowed.nodes:
                return f"limit reached: {allowed.nodes} nodes of {of} newly drained{repairs}"
            if used >= most:
                return f"limit reached: {allowed.percent:g} % of {of} ({most} of {size} nodes) newly drained{repairs}"
        return ""

    def admit(self, node: NodeFacts, drain: DrainFact, work: UnitOfWork) -> None:
        """Counts a drain that goes through; `node` is as it was before."""
        before = tuple(a for a in self.admitted if a.node != node.node)
        if len(before) == len(self.admitted):
            self._hour.update((drain.witnessed, area) for area in ("", *node.partitions))
        self.admitted = (*before, AdmittedDrain(node.node, work.now, node.partitions, drain.witnessed))
        self._count_out(node)

    def _count_out(self, node: NodeFacts) -> None:
        assert node.drain is not None
        self._out.update((node.drain.witnessed, area) for area in ("", *node.partitions))

    def _allowed(self, area: str, drain: DrainFact) -> _Allowed:
        limits = self._limits
        if drain.witnessed:
            per_hour = None if area else limits.witnessed_max_drains_per_hour
            return _Allowed(per_hour, limits.witnessed_max_nodes, limits.witnessed_max_percent)
        if area:
            per_hour = limits.partition_max_drains_per_hour or None
            return _Allowed(per_hour, limits.partition_max_nodes, limits.partition_max_percent)
        return _Allowed(limits.max_drains_per_hour, limits.max_nodes, limits.max_percent)
