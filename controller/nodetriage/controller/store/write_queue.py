"""What waits for the store's writer, and which callers' rows are written apart from the others'."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError

from nodetriage.controller.store import mappers

URGENT_GROUP_ROWS = 250  # with what shares the commit of an urgent job: a small one is a quick one
SUSPECT_S = 600.0  # after its last poison event a node's rows are written apart for so long
MOST_SUSPECTS = 1000
# PostgreSQL's classes of errors that the rows are to blame for: data exception, program limit exceeded.
_ROWS_TO_BLAME = ("22", "54")


@dataclass(frozen=True, slots=True)
class Job:
    """Either rows for one of the bulk statements, or `work` with a transaction to itself."""

    done: "asyncio.Future[Any]"
    statement: str = ""
    values: Sequence[mappers.Row] = ()
    work: Callable[[Connection], Any] | None = None
    urgent: bool = False

    @property
    def node(self) -> str:
        """Of the rows; "" for work."""
        return str(self.values[0].get("node", "")) if self.values else ""


class Jobs:
    """What waits for the writer's thread: urgent jobs first, else in the order of their coming."""

    def __init__(self) -> None:
        self._urgent: deque[Job] = deque()
        self._others: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, job: Job) -> None:
        with self._changed:
            (self._urgent if job.urgent else self._others).append(job)
            self._changed.notify()

    def close(self) -> None:
        """Ends the queue; jobs that are in it are still taken."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, max_rows: int) -> list[Job]:
        """Waits for work; at most `max_rows` unless one job alone has more. Empty after the last one."""
        group: list[Job] = []
        count = 0
        with self._changed:
            while not (self._urgent or self._others or self._closed):
                self._changed.wait()
            limit = min(max_rows, URGENT_GROUP_ROWS) if self._urgent else max_rows
            while (waiting := self._urgent or self._others) and count < limit:
                group.append(waiting.popleft())
                count += len(group[-1].values) or 1
        return group


class Suspects:
    """Nodes whose events the database refused lately. Their rows share no commit, so that they break nobody's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s: dict[str, float] = {}

    def add(self, node: str) -> None:
        self._until_s.pop(node, None)
        if len(self._until_s) >= MOST_SUSPECTS:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[node] = self._clock() + SUSPECT_S

    def apart(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """The jobs in groups that may share a commit."""
        if not self._until_s:
            return [list(jobs)] if jobs else []
        now_s = self._clock()
        together = [job for job in jobs if self._until_s.get(job.node, 0.0) <= now_s]
        alone = [[job] for job in jobs if self._until_s.get(job.node, 0.0) > now_s]
        return [together, *alone] if together else alone


def is_of_rows(error: Exception) -> bool:
    """Whether the database refused what the rows hold: without them the same transaction would have passed."""
    if isinstance(error, (DataError, IntegrityError, OverflowError, UnicodeError)):
        return True
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    return state[:2] in _ROWS_TO_BLAME
