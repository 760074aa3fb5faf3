"""A store for a test to work on, and events to put into it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb

BOOT = "11111111-1111-1111-1111-111111111111"


def event(seq: int, *, boot: str = BOOT, fault: str = "gpu_lost", **more: Any) -> pb.Event:
    given = {"kind": pb.EVENT_KIND_RAISED, "check": "gpu_lost", "component": "GPU-1", "severity": pb.SEVERITY_CRITICAL}
    return pb.Event(boot_id=boot, seq=seq, at_unix_us=1_000_000 + seq % 1_000_000, fault=fault, **{**given, **more})


@asynccontextmanager
async def opened(url: str, *nodes: str, **options: Any) -> AsyncIterator[Store]:
    store = Store(open_database(url), **options)
    await store.open()
    try:
        for node in nodes:
            await store.record_hello(Hello(node, BOOT, "0.1.0", "h100"), at_us=1)
        yield store
    finally:
        await store.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))
