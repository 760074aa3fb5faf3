"""Keeps the history within its time: a slice now and then, so that the service never waits for more than one."""

import asyncio
import time
from collections.abc import Callable

import structlog

from nodetriage.controller.policy.state import FleetState
from nodetriage.controller.settings.retention import RetentionSettings
from nodetriage.controller.store import retention
from nodetriage.controller.store.store import Store, StoreError

log = structlog.get_logger("retention")

BETWEEN_SLICES_S = 0.2


async def prune(store: Store, settings: RetentionSettings, state: Callable[[], FleetState]) -> None:
    """Until cancelled."""
    while settings.keep_days or settings.keep_inputs_days:
        try:
            deleted = await prune_once(store, settings, state(), time.time_ns() // 1000)
        except StoreError as error:
            log.error("old rows not deleted", why=str(error))
        else:
            if any(deleted.values()):
                log.info("old rows deleted", **deleted)
        await asyncio.sleep(settings.every_s)


async def prune_once(store: Store, settings: RetentionSettings, state: FleetState, now_us: int) -> dict[str, int]:
    """Deletes all that is too old now; returns how many rows of each table. Raises StoreError."""
    still_open = {f.event_id for node in state.nodes.values() for f in node.open_findings}
    old = retention.limits(settings, now_us, state.cursor, still_open)
    deleted: dict[str, int] = {}
    while any((found := await store.write(lambda c: retention.delete_slice(c, old))).values()):
        for name, rows in found.items():
            deleted[name] = deleted.get(name, 0) + rows
        await asyncio.sleep(BETWEEN_SLICES_S)
    return deleted
