"""The log of refusals: each with peer and reason up to a rate, above it their number."""

import asyncio
from collections import Counter
from time import monotonic

import structlog

from nodetriage.controller.token_bucket import Bucket
from nodetriage.service.address import peer_host

_log = structlog.get_logger(__name__)

PER_HOST_PER_MIN, PER_MIN = 30, 300
SUM_UP_S = 60.0
HOSTS = 1000  # remembered; the sum names the first ten


class Refusals:
    """Belongs to one event loop. A host that is refused again and again costs a line every two seconds."""

    def __init__(self, sum_up_s: float = SUM_UP_S) -> None:
        self._sum_up_s = sum_up_s
        self._all = Bucket(PER_MIN / 60, PER_MIN, monotonic())
        self._hosts: dict[str, Bucket] = {}
        self._unlogged: Counter[str] = Counter()
        self.total = 0

    def tell(self, peer: str, code: str, reason: str) -> None:
        """`code` is gRPC's name of the status."""
        self.total += 1
        host, now_s = peer_host(peer), monotonic()
        if host not in self._hosts:
            if len(self._hosts) >= HOSTS:
                del self._hosts[next(iter(self._hosts))]
            self._hosts[host] = Bucket(PER_HOST_PER_MIN / 60, PER_HOST_PER_MIN, now_s)
        if self._hosts[host].try_take(now_s) and self._all.try_take(now_s):
            _log.warning("peer sent away", peer=peer, code=code, reason=reason)
            return
        if not self._unlogged:
            asyncio.get_running_loop().call_later(self._sum_up_s, self.sum_up)
        if host in self._unlogged or len(self._unlogged) < HOSTS:
            self._unlogged[host] += 1
        else:
            self._unlogged["others"] += 1

    def sum_up(self) -> None:
        """Logs one line about all refusals that got none since the last sum."""
        if self._unlogged:
            most = dict(self._unlogged.most_common(10))
            _log.warning("more peers sent away", count=self._unlogged.total(), hosts=len(self._unlogged), most=most)
            self._unlogged.clear()
