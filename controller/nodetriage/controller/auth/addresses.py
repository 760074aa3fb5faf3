"""The addresses of a node: those of its name and of the scheduler's names for it (NodeAddr, NodeHostName)."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import structlog

from nodetriage.controller.scheduler import SchedulerRefused, SchedulerUnavailable

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
# Further names or addresses of every node.
Hosts = Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]]

_log = structlog.get_logger(__name__)

KEEP_S = 60.0
LOOK_UP_LIMIT_S = 5.0


async def no_hosts() -> Mapping[str, tuple[str, ...]]:
    """For a controller without a scheduler."""
    return {}


class NodeAddresses:
    """Keeps answers for a minute. A name that does not resolve has no address, and the caller refuses the node."""

    def __init__(self, hosts: Hosts = no_hosts) -> None:
        self._hosts = hosts
        self._names: Mapping[str, tuple[str, ...]] = {}
        self._names_at_s = float("-inf")
        self._asking = asyncio.Lock()
        self._kept: dict[str, tuple[float, frozenset[Address]]] = {}

    async def of(self, node: str) -> frozenset[Address]:
        now_s = asyncio.get_running_loop().time()
        at_s, found = self._kept.get(node, (float("-inf"), frozenset[Address]()))
        if found and now_s - at_s < KEEP_S:
            return found
        names = dict.fromkeys((node, *(await self._hosts_known(now_s)).get(node, ())))
        looked_up = await asyncio.gather(*(_look_up(name) for name in names))
        found = frozenset[Address]().union(*looked_up)
        self._kept[node] = now_s, found
        return found

    async def _hosts_known(self, now_s: float) -> Mapping[str, tuple[str, ...]]:
        """Asks the scheduler once for all nodes, however many connect at once."""
        async with self._asking:
            if now_s - self._names_at_s >= KEEP_S:
                self._names_at_s = now_s
                try:
                    self._names = await self._hosts()
                except (SchedulerRefused, SchedulerUnavailable) as error:
                    _log.warning("the scheduler did not list node addresses, using node names alone", why=str(error))
            return self._names


async def _look_up(name: str) -> frozenset[Address]:
    try:
        async with asyncio.timeout(LOOK_UP_LIMIT_S):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return frozenset()
    return frozenset(ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in found)
