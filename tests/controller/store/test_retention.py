"""What is older than the history is kept is deleted in slices, and what is still needed stays."""

from collections.abc import Sequence

import pytest
from opened_store import BOOT, event, opened
from sqlalchemy import Connection, func, select

from nodetriage.controller.engine import pruning
from nodetriage.controller.policy.state import Action, ActionKind, FleetState, Step
from nodetriage.controller.settings.retention import RetentionSettings
from nodetriage.controller.store import retention, schema, state_store
from nodetriage.controller.store.retention import DAY_US, Limits

START_US = 1_700_000_000_000_000
KEEP = RetentionSettings(keep_days=10, keep_inputs_days=5)


def left(connection: Connection) -> list[int]:
    return list(connection.execute(select(schema.events.c.id).order_by(schema.events.c.id)).scalars())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "BETWEEN_SLICES_S", 0.0)


async def test_old_events_go_slice_by_slice_and_new_and_open_and_untaken_ones_stay(database_url: str) -> None:
    async with opened(database_url, "n1") as store:
        for day in range(20):
            batch = [event(day * 10 + i + 1) for i in range(10)]
            await store.record("n1", batch, received_us=START_US + day * DAY_US)
        now_us = START_US + 20 * DAY_US
        old = retention.limits(KEEP, now_us, upto=95, open_events={7})
        counted = await store.read(lambda c: retention.count(c, old))
        assert counted["events"] == (94, 200)
        slices = [1]
        while slices[-1]:
            slices.append((await store.write(lambda c: retention.delete_slice(c, old, 40)))["events"])
        assert slices[1:] == [40, 40, 14, 0]
        assert await store.read(left) == [7, *range(96, 201)]


async def test_nothing_is_deleted_where_everything_is_to_be_kept(database_url: str) -> None:
    async with opened(database_url, "n1") as store:
        await store.record("n1", [event(1)], received_us=1)
        forever = RetentionSettings(keep_days=0, keep_inputs_days=0)
        assert await pruning.prune_once(store, forever, FleetState(cursor=1), START_US) == {}
        assert await store.read(left) == [1]


async def test_actions_that_are_not_done_stay_and_a_replay_still_has_a_snapshot(database_url: str) -> None:
    async with opened(database_url, "n1") as store:
        at = state_store.from_us(START_US)
        actions: Sequence[Action] = [
            Action("shadow-1", ActionKind.SHADOW, "n1"), Action("drain-1", ActionKind.DRAIN, "n1")
        ]  # fmt: skip
        step = Step(FleetState(cursor=1), actions=tuple(actions))
        await store.write(lambda c: state_store.save(c, FleetState(), step, at))
        kinds = ("snapshot", "tick", "snapshot", "tick", "tick")
        rows = [{"at_us": START_US + i * DAY_US, "kind": k, "document": b""} for i, k in enumerate(kinds)]
        await store.write(lambda c: c.execute(schema.inputs.insert(), rows))
        hits = [
            {"incident": "i1", "job": job, "restarts": 0, "node": "n1", "at_us": at_us, "document": b""}
            for job, at_us in (("11", START_US), ("12", START_US), ("13", START_US + 29 * DAY_US))
        ]
        await store.write(lambda c: c.execute(schema.job_hits.insert(), hits))
        deleted = await pruning.prune_once(store, KEEP, FleetState(cursor=1), START_US + 30 * DAY_US)
        assert deleted == {"events": 0, "actions": 1, "job_hits": 2, "inputs": 2}
        assert list(await store.read(lambda c: list(c.execute(select(schema.actions.c.id)).scalars()))) == ["drain-1"]
        kept = await store.read(lambda c: list(c.execute(select(schema.inputs.c.kind)).scalars()))
        assert kept == ["snapshot", "tick", "tick"]


async def test_the_first_kept_cursor_is_found_whatever_gaps_there_are(sqlite_url: str) -> None:
    async with opened(sqlite_url, "n1") as store:
        for seq in range(1, 60):
            await store.record("n1", [event(seq)], received_us=seq)
        await store.write(lambda c: c.execute(schema.events.delete().where(schema.events.c.id % 7 < 5)))
        ids = await store.read(left)
        for before_us in range(0, 62):
            found = await store.read(
                lambda c, b=before_us: retention.count(c, Limits(b, None, 2**40))["events"][0]  # type: ignore[misc]
            )
            assert found == sum(one < before_us for one in ids)


async def test_a_year_of_a_fleets_rows_keeps_the_file_as_large_as_after_the_first_window(sqlite_url: str) -> None:
    """2,000 nodes with 3 events a day are 6,000 rows a day; here each day has 60 of them."""
    settings = RetentionSettings(keep_days=30, keep_inputs_days=30)
    async with opened(sqlite_url, "n1") as store:
        pages: list[int] = []
        for day in range(365):
            now_us = START_US + day * DAY_US
            batch = [event(day * 60 + i + 1, boot=BOOT) for i in range(60)]
            await store.record("n1", batch, received_us=now_us)
            await pruning.prune_once(store, settings, FleetState(cursor=store.newest_id), now_us)
            if day in (60, 364):
                pages.append(await store.read(lambda c: int(c.exec_driver_sql("PRAGMA page_count").scalar() or 0)))
                rows = await store.read(lambda c: c.scalar(select(func.count()).select_from(schema.events)))
                assert rows == 31 * 60
        assert pages[1] <= pages[0] * 1.05
