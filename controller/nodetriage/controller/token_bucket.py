"""A token bucket: so many a second, and so many at once after a time without any."""

import asyncio


class Bucket:
    """Holds `burst` tokens when full and gains `per_s` a second. Times are monotonic seconds of the caller's choice."""

    __slots__ = ("_at_s", "_burst", "_per_s", "_tokens")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens, self._at_s = float(burst), now_s

    def try_take(self, now_s: float) -> bool:
        """Takes one token if there is one: never into debt."""
        if self.take(0, now_s) > 0 or self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def take(self, count: int, now_s: float) -> float:
        """Takes `count` tokens, into debt if need be; returns the seconds until the debt is paid."""
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s) - count
        self._at_s = now_s
        return max(0.0, -self._tokens / self._per_s)


async def wait_for_token(bucket: Bucket) -> None:
    """Takes one token, and sleeps until it is there. Times are the loop's."""
    if (wait_s := bucket.take(1, asyncio.get_running_loop().time())) > 0:
        await asyncio.sleep(wait_s)
