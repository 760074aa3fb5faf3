"""The store: one thread writes, many callers wait, and each returns after the commit that holds its rows.

Callers that arrive while a commit is under way share the next one (group commit), so the price of a disk flush is
paid per group and not per caller. Reads run on threads of their own, never behind a write.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from nodetriage.controller.store import history, mappers, poison
from nodetriage.controller.store.database import StoreError, create_tables, reason_of
from nodetriage.controller.store.mappers import Hello, Seen
from nodetriage.controller.store.write_queue import Job, Jobs, Suspects, is_of_rows
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2

T = TypeVar("T")

log = structlog.get_logger(__name__)

__all__ = ["Store", "StoreError"]


class Store:
    """All writing and reading of the history. Use it within one event loop, after `open` and until `close`."""

    def __init__(self, engine: Engine, *, max_waiting: int = 512, max_group_rows: int = 5_000) -> None:
        self._engine = engine
        self._max_group_rows = max_group_rows
        self._places = asyncio.Semaphore(max_waiting)
        self._jobs = Jobs()
        self._writer = threading.Thread(target=self._write_until_closed, name="store-writer", daemon=True)
        self._readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="store-reader")
        self._grown = asyncio.Event()
        self._listeners: list[Callable[[int], None]] = []
        self.on_urgent: Callable[[Sequence[mappers.Row], int], None] = lambda rows, newest: None
        self._closed = False
        self.set_aside_events = 0  # since the start
        self._suspects = Suspects()
        self.newest_id = 0  # cursor of the last event on disk
        self.fence: Callable[[Connection], None] | None = None  # begins each transaction; raises where we may not write

    async def open(self) -> None:
        """Makes missing tables and starts the writer. Raises StoreError where the database cannot be used."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._loop.run_in_executor(self._readers, create_tables, self._engine)
            self.newest_id = await self.read(history.newest_cursor)
        except SQLAlchemyError as error:
            self._readers.shutdown(wait=False)
            raise StoreError(reason_of(error)) from error
        self._writer.start()

    async def close(self) -> None:
        """Writes what waits, then closes the database."""
        if self._closed:
            return
        self._closed = True
        self._jobs.close()
        if self._writer.ident is not None:
            await asyncio.to_thread(self._writer.join)
        self._readers.shutdown(wait=True)
        self._engine.dispose()

    async def record(
        self, node: str, batch: Sequence[health_pb2.Event], received_us: int, *, urgent: bool = False
    ) -> list[SeqRange]:
        """Stores a node's events and returns the ranges that are now on disk: all of them, new or known.

        `urgent` ones wait for the commit that is under way and for no other. The node must have said hello
        (`record_hello`) first. Raises StoreError; then none of them counts.
        """
        await self._insert("events", [mappers.event_row(node, event, received_us) for event in batch], urgent)
        return mappers.ranges_of(batch)

    async def set_aside(self, events: Sequence[poison.Poison]) -> None:
        """Keeps events that are not stored, as far as their bounds allow. Raises StoreError."""
        self.set_aside_events += len(events)
        log.warning("events set aside", node=events[0].node, count=len(events), why=events[0].why)
        await self.write(lambda c: poison.keep(c, events))

    async def record_hello(self, hello: Hello, at_us: int) -> list[SeqRange]:
        """Stores how a node describes itself; returns the stored ranges of its present boot. Raises StoreError."""
        await self._insert("hello", [mappers.node_row(hello, at_us)])
        return await self.read(lambda c: history.stored_ranges(c, hello.node, hello.boot_id))

    async def record_seen(self, heard: Sequence[Seen]) -> None:
        """Moves `last_seen_us` of many nodes forward, and keeps their heartbeats. Raises StoreError."""
        await self._insert("seen", [mappers.seen_row(one) for one in heard])

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on the writer's thread in a transaction of its own; returns after its commit.

        Raises StoreError where the database refuses; other exceptions of `work` come through after a rollback.
        """
        return await self._enqueue(lambda done: Job(done, work=work))  # type: ignore[no-any-return]

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on a reader's thread. Raises StoreError where the database refuses."""

        def call() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        try:
            return await self._loop.run_in_executor(self._readers, call)
        except SQLAlchemyError as error:
            raise StoreError(reason_of(error)) from error

    def on_events(self, listener: Callable[[int], None]) -> None:
        """Calls `listener` with the newest cursor, on the event loop, after each commit that added events."""
        self._listeners.append(listener)

    async def beyond(self, cursor: int) -> int:
        """Waits until there is an event after `cursor`; returns the newest one's."""
        while self.newest_id <= cursor:
            await self._grown.wait()
        return self.newest_id

    async def _insert(self, statement: str, values: Sequence[mappers.Row], urgent: bool = False) -> None:
        if values:
            await self._enqueue(lambda done: Job(done, statement, values, urgent=urgent), urgent)

    async def _enqueue(self, make: Callable[["asyncio.Future[Any]"], Job], urgent: bool = False) -> Any:
        # In the order of arrival. A caller holds one place, so none can crowd out others; urgent ones are few.
        async with contextlib.nullcontext() if urgent else self._places:
            if self._closed:
                raise StoreError("the store is closed")
            done: asyncio.Future[Any] = self._loop.create_future()
            self._jobs.put(make(done))
            return await done

    # Below: the writer's thread.

    def _write_until_closed(self) -> None:
        while group := self._jobs.take(self._max_group_rows):
            bulk = [job for job in group if job.work is None]
            answers = [answer for part in self._suspects.apart(bulk) for answer in self._write_bulk(part)]
            for job in group:
                if job.work is not None:
                    answers.append((job, *self._attempt(job.work)))
            newest = self._newest_after(group, answers)
            self._loop.call_soon_threadsafe(self._answer, answers, newest)

    def _write_bulk(self, bulk: list[Job]) -> list[tuple[Job, Any, Exception | None]]:
        _, error = self._attempt(lambda connection: self._execute(connection, bulk))
        if error is not None and is_of_rows(error):
            if len(bulk) > 1:
                # One caller's rows are wrong: write each caller's alone, so that only that one fails.
                return [answer for job in bulk for answer in self._write_bulk([job])]
            if bulk[0].statement == "events" and not isinstance(error, IntegrityError):
                error = self._without_poison(bulk[0])
        return [(job, None, error) for job in bulk]

    def _without_poison(self, job: Job) -> Exception | None:
        """Writes what the database takes of one caller's events, and sets the others aside."""
        self._suspects.add(job.node)
        parts = [list(job.values)]
        while parts:
            rows = parts.pop()
            part = replace(job, values=rows)
            _, error = self._attempt(lambda c, part=part: self._execute(c, [part]))  # type: ignore[misc]
            if error is not None and is_of_rows(error) and len(rows) > 1:
                parts += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
                continue
            if error is not None and is_of_rows(error):
                found = mappers.poison_of(rows[0], str(error))
                _, error = self._attempt(lambda c, found=found: poison.keep(c, [found]))  # type: ignore[misc]
                self.set_aside_events += 1
                log.warning("event set aside", node=found.node, seq=found.seq, why=found.why)
            if error is not None:
                return error
        return None

    def _execute(self, connection: Connection, bulk: list[Job]) -> None:
        for name, statement in mappers.statements(self._engine.dialect.name).items():
            values = [row for job in bulk if job.statement == name for row in job.values]
            if values:
                connection.execute(statement, values)

    def _attempt(self, work: Callable[[Connection], Any]) -> tuple[Any, Exception | None]:
        try:
            with self._engine.begin() as connection:
                if self.fence is not None:
                    self.fence(connection)
                return work(connection), None
        except Exception as error:  # noqa: BLE001 the writer's boundary: the caller gets it, the thread goes on
            return None, error

    def _newest_after(self, group: list[Job], answers: list[tuple[Job, Any, Exception | None]]) -> int:
        if not any(job.statement == "events" or job.work for job, _, error in answers if error is None):
            return self.newest_id
        newest, error = self._attempt(history.newest_cursor)
        return self.newest_id if error else int(newest)

    # Below: the event loop again.

    def _answer(self, answers: list[tuple[Job, Any, Exception | None]], newest: int) -> None:
        for job, value, error in answers:
            if job.done.done():
                continue  # its caller was cancelled; the rows are stored
            if isinstance(error, SQLAlchemyError):
                error = StoreError(reason_of(error))
            if error is not None:
                job.done.set_exception(error)
            else:
                job.done.set_result(value)
        if urgent := [row for job, _, error in answers if job.urgent and not error for row in job.values]:
            self.on_urgent(urgent, newest)
        if newest > self.newest_id:
            self.newest_id = newest
            self._grown.set()
            self._grown = asyncio.Event()
            for listener in self._listeners:
                listener(newest)
