"""How many streams each host has and how often it tries, so that no host takes all from the others."""

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from nodetriage.controller.refused import Refused
from nodetriage.controller.token_bucket import Bucket

REMEMBERED = 10_000  # hosts without a stream


@dataclass(slots=True)
class _Host:
    tries: Bucket
    streams: int = 0


class Peers:
    """Counts by address without the port: a peer chooses its port."""

    def __init__(self, max_streams: int, tries_per_min: int) -> None:
        self._max_streams, self._tries_per_min = max_streams, tries_per_min
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    @contextlib.contextmanager
    def stream(self, host: str, now_s: float) -> Iterator[None]:
        """Counts a stream while the block runs. Raises Refused for one too many."""
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host(Bucket(self._tries_per_min / 60, self._tries_per_min, now_s))
            self._forget()
        self._hosts.move_to_end(host)
        if not known.tries.try_take(now_s):
            raise _too_many(f"{host} opens more than {self._tries_per_min} streams a minute")
        if known.streams >= self._max_streams:
            raise _too_many(f"{host} has {known.streams} streams already")
        known.streams += 1
        try:
            yield
        finally:
            known.streams -= 1

    def _forget(self) -> None:
        if len(self._hosts) > REMEMBERED:
            oldest = next((h for h, known in self._hosts.items() if not known.streams), None)
            if oldest is not None:
                del self._hosts[oldest]


def _too_many(reason: str) -> Refused:
    return Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
