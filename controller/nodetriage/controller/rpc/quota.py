"""What one node may send: so many events and bytes a second, and so many bytes a day on the disk.

It belongs to the node and not to its stream: one that connects again begins where it ended.
"""

from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.token_bucket import Bucket

DAY_S = 86_400.0
BEAT_COUNTS_AS = 50  # events: an honest agent sends one in five seconds
LEAST_BYTES = 256  # as which the smallest message counts


class Quota:
    """Of one node. Times are monotonic seconds."""

    __slots__ = ("_bytes", "_day", "_day_bytes", "_events")

    def __init__(self, limits: AdmissionSettings, now_s: float) -> None:
        self._events = Bucket(limits.events_per_s_per_node, limits.burst_events_per_node, now_s)
        self._bytes = Bucket(limits.bytes_per_s_per_node, limits.burst_bytes_per_node, now_s)
        self._day_bytes = limits.mib_per_day_per_node * 1024.0 * 1024.0
        self._day = Bucket(self._day_bytes / DAY_S, self._day_bytes, now_s)

    def read(self, events: int, size: int, now_s: float) -> float:
        """Counts one message; returns how long the controller is to wait before it reads the next."""
        return max(self._events.take(events, now_s), self._bytes.take(max(size, LEAST_BYTES), now_s))

    def may_store(self, size: int, grave: bool, now_s: float) -> bool:
        """Counts what goes to the disk. Over the day's quota only what is grave does; over twice the quota nothing."""
        debt_s = self._day.take(0, now_s)
        if debt_s > (DAY_S if grave else 0.0):
            return False
        self._day.take(size, now_s)
        return True


class Quotas:
    """One for each node; the event loop owns them. `most` nodes are remembered, the last ones that connected."""

    def __init__(self, limits: AdmissionSettings) -> None:
        self._limits, self._most = limits, 2 * limits.max_agents
        self._of: dict[str, Quota] = {}

    def of(self, node: str, now_s: float) -> Quota:
        found = self._of.pop(node, None) or Quota(self._limits, now_s)
        if len(self._of) >= self._most:
            del self._of[next(iter(self._of))]
        self._of[node] = found
        return found
