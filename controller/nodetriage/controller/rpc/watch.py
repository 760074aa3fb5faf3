"""Watch: the stored events from a cursor on, for other programs, at least once and in the order of the cursors."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TypeVar

from nodetriage.controller.refused import Refused
from nodetriage.controller.store import history
from nodetriage.controller.store.history import EventFilter, StoredEvent
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2

_PAGE = 500
T = TypeVar("T")


async def watch(store: Store, request: health_pb2.WatchRequest) -> AsyncGenerator[health_pb2.WatchedEvent, None]:
    """Each stored event that `request` asks for; ends at the newest unless it follows. Raises StoreError."""
    wanted = EventFilter(
        nodes=tuple(request.nodes),
        faults=tuple(request.faults),
        min_severity=request.min_severity,
        after=request.after_cursor,
    )
    newest = store.newest_id
    while True:
        # Read up to a cursor that is known beforehand: the next page has what is committed meanwhile.
        page = await _page(store, replace(wanted, upto=newest))
        for stored in page:
            yield _watched(stored)
        if len(page) == _PAGE:
            wanted = replace(wanted, after=page[-1].cursor)
            continue
        if not request.follow:
            return
        wanted = replace(wanted, after=max(newest, wanted.after))
        newest = await store.beyond(wanted.after)


async def until(ended: "asyncio.Future[Refused]", events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The events, until `ended` has a reason, which is then raised.

    Ends only the wait for the next event. The caller may be passing an event to a client that does not read, and gRPC
    sends that client no status before it reads.
    """
    async with contextlib.aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events, None))
            try:
                await asyncio.wait((coming, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                coming.cancel()
                await asyncio.wait([coming])
            if ended.done():
                raise ended.result()
            if (event := coming.result()) is None:
                return
            yield event


async def _page(store: Store, wanted: EventFilter) -> list[StoredEvent]:
    return await store.read(lambda connection: history.events_after(connection, wanted, _PAGE))


def _watched(stored: StoredEvent) -> health_pb2.WatchedEvent:
    return health_pb2.WatchedEvent(
        cursor=stored.cursor, node=stored.node, received_unix_us=stored.received_us, event=stored.event
    )
