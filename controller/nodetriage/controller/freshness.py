"""When each node was last heard, and what its last heartbeat said. In memory: a restart begins with nothing heard."""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.v1 import health_pb2


@dataclass(frozen=True, slots=True)
class Heard:
    """The last sign of life of a node. `heartbeat` is its newest one; any message counts as a sign of life."""

    node: str
    at_s: float  # monotonic
    at_us: int  # unix, UTC
    heartbeat: health_pb2.Heartbeat | None = None
    heartbeat_us: int | None = None  # when that came


class Freshness:
    """One entry a node, owned by the event loop. The age of a check grows even while nothing arrives."""

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s  # before this nothing can have been heard
        self._heard: dict[str, Heard] = {}
        self._unsaved: set[str] = set()

    def hear(self, node: str, now_s: float, now_us: int, heartbeat: health_pb2.Heartbeat | None = None) -> None:
        heartbeat_us = now_us if heartbeat else None
        if heartbeat is None and (last := self._heard.get(node)):
            heartbeat, heartbeat_us = last.heartbeat, last.heartbeat_us
        self._heard[node] = Heard(node, now_s, now_us, heartbeat, heartbeat_us)
        self._unsaved.add(node)

    def of(self, node: str) -> Heard | None:
        return self._heard.get(node)

    def silent(self, now_s: float, longer_than_s: float) -> Iterator[Heard]:
        """Nodes that were heard since the start and then not for `longer_than_s`."""
        return (heard for heard in self._heard.values() if now_s - heard.at_s > longer_than_s)

    def take_unsaved(self) -> list[Heard]:
        """The nodes heard since the last call."""
        unsaved, self._unsaved = self._unsaved, set()
        return [self._heard[node] for node in unsaved]
