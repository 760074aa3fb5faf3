"""When a node does what it does from time to time: as much as possible at the same moments.

Each moment wakes processes that sleep, and that costs more than what most of them then do. It is also kinder to a job
that all its ranks wait for. Nodes have a phase each, so that a fleet does not ask its file servers all at once.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field

PHASE_S = 300.0  # within which nodes are spread


@dataclass(frozen=True, slots=True)
class AlignedTimer:
    """`phase` is a share of PHASE_S."""

    phase: float = field(default_factory=random.random)

    def until_next_s(self, every_s: float, now_s: float | None = None) -> float:
        """How long until the next moment of this interval: those that divide each other fall together. `now_s`:
        monotonic."""
        now_s = time.monotonic() if now_s is None else now_s
        return every_s - (now_s - self.phase * PHASE_S) % every_s


async def woken_or_due(wake: asyncio.Event, wait_s: float) -> None:
    """Returns when `wake` is set, which this does itself after `wait_s`.

    A timeout would end by an exception, which costs more; wait_for may lose a cancellation that comes with the event.
    """
    due = asyncio.get_running_loop().call_later(wait_s, wake.set)
    try:
        await wake.wait()
    finally:
        due.cancel()
