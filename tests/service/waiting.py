"""Waiting for a condition, never for a time: `until` blocks, `eventually` lets the event loop run."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 60.0  # on a machine with load
T = TypeVar("T")


def until(condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """What `condition` gives, once that counts as true. Fails after `limit_s`."""
    end_s = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < end_s, f"not within {limit_s:g} s"
        time.sleep(0.01)
    return value


async def eventually(condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """As `until`, in a coroutine."""
    end_s = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < end_s, f"not within {limit_s:g} s"
        await asyncio.sleep(0.005)
    return value
