"""Waiting for a condition, never for a time."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> float:
    """Seconds until `condition()` held. Raises TimeoutError naming `what`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - began
