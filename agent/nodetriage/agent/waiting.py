"""How the agent waits: for an event or a moment, at this node's own phase."""

import asyncio
import random

from nodetriage.agent.core.aligned_timer import AlignedTimer


def node_timer() -> AlignedTimer:
    """A timer with a random phase, for the life of this agent."""
    return AlignedTimer(random.random())


async def woken_or_due(wake: asyncio.Event, wait_s: float) -> None:
    """Returns when `wake` is set, which this function itself does after `wait_s`.

    A timeout would end with an exception, which costs more; wait_for can lose a cancellation that comes with the event.
    """
    due = asyncio.get_running_loop().call_later(wait_s, wake.set)
    try:
        await wake.wait()
    finally:
        due.cancel()
