"""Bytes through the RDMA ports, for the heartbeat: a running job with silent ports makes a node suspect."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from nodetriage.agent.core.aligned_timer import AlignedTimer
from nodetriage.agent.core.result import Result
from nodetriage.agent.machine.port_bytes import TRAFFIC, Policy, PortBytes
from nodetriage.checks.model import Check

EVERY_S = 60.0
NO_PORTS_EVERY_S = 600.0  # on a node without ports: a driver may be loaded later

_readings = msgspec.json.Decoder(tuple[PortBytes, ...])


class Traffic:
    """The last reading and its time. `ask` runs TRAFFIC in its worker."""

    def __init__(
        self,
        ask: Callable[[Check[tuple[PortBytes, ...], Policy]], Awaitable[Result]],
        timer: AlignedTimer | None = None,
    ) -> None:
        self._ask = ask
        self._timer = timer or AlignedTimer()
        self._ports: tuple[PortBytes, ...] = ()
        self._read_s = 0.0
        self._is_new = False

    async def run(self) -> None:
        """Reads periodically until cancelled."""
        while True:
            self.take(await self._ask(TRAFFIC), time.monotonic())
            await asyncio.sleep(
                self._timer.until_next_s(EVERY_S if self._ports else NO_PORTS_EVERY_S, time.monotonic())
            )

    def take(self, result: Result, now_s: float) -> None:
        """Takes a result. A failed run gives no reading; the checks of ports report why."""
        try:
            ports = _readings.decode(result.memory or b"null")
        except msgspec.MsgspecError:
            return
        self._ports, self._read_s, self._is_new = ports, now_s, True

    def ports(self, whole: bool, now_s: float) -> tuple[tuple[PortBytes, ...], float]:
        """The last reading and its age, if it is new since the last call or `whole` is true; else no ports."""
        if not (whole or self._is_new):
            return (), 0.0
        self._is_new = False
        return self._ports, now_s - self._read_s
