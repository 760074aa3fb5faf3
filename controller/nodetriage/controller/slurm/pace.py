"""Keeps calls apart: so many a second and no more, however many are asked for at once."""

import asyncio


class Pace:
    """`await turn()` before each call. Two seconds' worth may go at once, so that one node's drain never waits."""

    def __init__(self, per_s: float) -> None:
        self._every_s = 1 / per_s
        self._ahead_s = 2.0
        self._next = 0.0  # when the next call would be due if all came evenly; the loop's clock

    async def work(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._ahead_s) + self._every_s
        if self._next > now:
            await asyncio.sleep(self._next - now)
