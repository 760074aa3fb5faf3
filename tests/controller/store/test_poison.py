"""An event that the database refuses is set aside and acked, and everything around it is stored."""

import asyncio
import random
import string

import pytest
from opened_store import BOOT, event, opened
from sqlalchemy import func, select

from nodetriage.controller.store import history, poison, schema
from nodetriage.controller.store.history import EventFilter
from nodetriage.controller.store.store import Store, StoreError
from nodetriage.controller.store.write_queue import Job, Suspects
from nodetriage.service.seq_range import SeqRange

# More than an entry of PostgreSQL's index holds (2,704 bytes), and not to be compressed.
LONG = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=6000))


async def stored(store: Store) -> list[tuple[str, int]]:
    found = await store.read(lambda c: history.events_after(c, EventFilter(), 100_000))
    return [(s.node, s.event.seq) for s in found]


async def test_a_group_is_split_down_to_the_event_that_postgresql_refuses(postgres_url: str) -> None:
    async with opened(postgres_url, "n1", "n2", "n3") as store:
        batch = [event(seq, fault=LONG if seq == 4 else "gpu_lost") for seq in range(1, 10)]
        answers = await asyncio.gather(
            store.record("n1", [event(1)], received_us=5),
            store.record("n2", batch, received_us=5),
            store.record("n3", [event(1)], received_us=5),
        )
        assert answers[1] == [SeqRange(BOOT, 1, 9)]
        assert sorted(await stored(store)) == [
            ("n1", 1), *(("n2", seq) for seq in range(1, 10) if seq != 4), ("n3", 1)
        ]  # fmt: skip
        [one] = await store.read(lambda c: poison.newest(c, "", 10))
        assert (one.node, one.boot_id, one.seq, one.received_us) == ("n2", BOOT, 4, 5)
        assert "index row" in one.why
        assert store.set_aside_events == 1


async def test_a_node_that_sent_poison_shares_no_commit_for_a_while(postgres_url: str) -> None:
    async with opened(postgres_url, "n1", "bad") as store:
        await store.record("bad", [event(1, fault=LONG)], received_us=5)
        await asyncio.gather(
            store.record("bad", [event(2, fault=LONG)], received_us=5), store.record("n1", [event(1)], received_us=5)
        )
        assert await stored(store) == [("n1", 1)]
        assert store.set_aside_events == 2


async def test_jobs_of_suspects_come_apart_until_their_time_is_over() -> None:
    now_s = [0.0]
    suspects = Suspects(lambda: now_s[0])
    jobs = [Job(asyncio.get_running_loop().create_future(), "events", [{"node": n}]) for n in ("a", "bad", "b")]
    assert list(suspects.apart(jobs)) == [jobs]
    suspects.add("bad")
    assert list(suspects.apart(jobs)) == [[jobs[0], jobs[2]], [jobs[1]]]
    now_s[0] = 601.0
    assert list(suspects.apart(jobs)) == [jobs]


async def test_where_the_poison_cannot_be_kept_either_the_caller_has_the_error(postgres_url: str) -> None:
    async with opened(postgres_url, "n1") as store:
        await store.write(lambda c: c.exec_driver_sql("DROP TABLE poison"))
        with pytest.raises(StoreError, match="poison"):
            await store.record("n1", [event(1, fault=LONG)], received_us=5)


async def test_the_newest_are_kept_of_each_node_and_of_all(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison, "IN_ALL", 250)
    async with opened(database_url) as store:
        for n in range(40):
            many = [poison.of(f"n{n % 4}", event(n * 30 + i + 1), 5, "too long") for i in range(30)]
            await store.set_aside(many)
        rows = schema.poison.c
        counted = select(rows.node, func.count()).group_by(rows.node)
        by_node = await store.read(lambda c: dict(list(c.execute(counted))))
        assert all(count <= poison.PER_NODE for count in by_node.values())
        assert sum(by_node.values()) <= 250
        assert store.set_aside_events == 40 * 30
        [last] = await store.read(lambda c: poison.newest(c, "n3", 1))
        assert last.seq == 40 * 30
