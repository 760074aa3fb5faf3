"""Of two controllers on one PostgreSQL one leads, and one that was deposed can write nothing."""

import asyncio
from functools import partial

import psycopg
import pytest
from slurm_wait import wait_until
from sqlalchemy import func, make_url, select

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.leader import Deposed, Leadership
from nodetriage.controller.store import migrate, schema
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.service.notify import Notify

LIMIT_S = 60


def leadership(url: str) -> Leadership:
    return Leadership(make_url(url).set(drivername="postgresql+psycopg"))


def end_sessions_that_hold_the_lock(url: str) -> None:
    """As a failover of PostgreSQL does, or an administrator."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )


def waits_for_a_row(url: str) -> bool:
    """Whether a transaction of this database waits for another's."""
    with psycopg.connect(url, autocommit=True) as admin:
        return admin.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone() == (1,)


async def test_the_second_waits_for_the_first_and_is_of_a_later_epoch(postgres_url: str) -> None:
    first, second = leadership(postgres_url), leadership(postgres_url)
    async with asyncio.timeout(LIMIT_S):
        await first.take(Notify({}))
        waiting = asyncio.create_task(second.take(Notify({})))
        while not second.waits_for:  # noqa: ASYNC110 the product needs no event for this
            await asyncio.sleep(0.01)
        assert not waiting.done()
        assert "pid" in second.waits_for
        first.release()
        await waiting
    assert (first.epoch, second.epoch) == (1, 2)
    second.release()


async def test_tables_are_not_upgraded_under_a_leader(postgres_url: str) -> None:
    engine = open_database(postgres_url)

    first = leadership(postgres_url)
    await first.take(Notify({}))
    with pytest.raises(ConfigError, match="a controller leads"):
        migrate.upgrade(engine)
    first.release()
    engine.dispose()


async def test_one_that_lost_its_lock_learns_it_and_can_write_nothing_once_another_leads(postgres_url: str) -> None:
    hello = Hello(node="n1", boot_id="b", agent_version="1", profile="")

    old, new = leadership(postgres_url), leadership(postgres_url)
    await old.take(Notify({}))
    store = Store(open_database(postgres_url))
    store.fence = old.fence
    await store.open()
    await store.record_hello(hello, 1)
    end_sessions_that_hold_the_lock(postgres_url)
    async with asyncio.timeout(LIMIT_S):
        await new.take(Notify({}))
        assert await old.until_lost()
    writes = (
        store.record_hello(hello, 2),
        store.write(lambda c: c.execute(schema.nodes.delete())),
    )
    for write in writes:
        with pytest.raises(Deposed, match="epoch 2 began, this controller's was 1"):
            await write
    assert await store.read(lambda c: c.scalar(select(func.max(schema.nodes.c.last_seen_us)))) == 1
    await store.close()
    old.release()
    new.release()


async def test_a_new_leader_waits_for_the_transaction_of_the_old_one_that_is_under_way(postgres_url: str) -> None:
    old, new = leadership(postgres_url), leadership(postgres_url)
    await old.take(Notify({}))
    engine = open_database(postgres_url)
    with engine.connect() as connection, connection.begin():
        old.fence(connection)
        end_sessions_that_hold_the_lock(postgres_url)
        taking = asyncio.create_task(new.take(Notify({})))
        seen = partial(wait_until, lambda: waits_for_a_row(postgres_url), LIMIT_S, "the new leader waits")
        await asyncio.to_thread(seen)
        assert not taking.done()
    async with asyncio.timeout(LIMIT_S):
        await taking
    assert new.epoch == 2
    engine.dispose()
    old.release()
    new.release()
