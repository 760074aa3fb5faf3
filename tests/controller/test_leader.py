"""Of two controllers on one PostgreSQL one leads, and one that was deposed can write nothing."""

import asyncio

import psycopg
import pytest
from slurm_wait import wait_until
from sqlalchemy import func, make_url, select
from sqlalchemy.exc import OperationalError

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller import leader
from nodetriage.controller.leader import Deposed, Leadership
from nodetriage.controller.store import migrate, schema
from nodetriage.controller.store.database import WrongRevision, create_tables, open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store, StoreError
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


async def test_a_new_leader_ends_a_transaction_that_the_old_one_left_open(postgres_url: str) -> None:
    old, new = leadership(postgres_url), leadership(postgres_url)
    await old.take(Notify({}))
    engine = open_database(postgres_url)
    with engine.connect() as connection:
        connection.begin()
        old.fence(connection)  # as of a leader whose link is cut: the row of the epoch stays locked
        end_sessions_that_hold_the_lock(postgres_url)
        async with asyncio.timeout(LIMIT_S):
            await new.take(Notify({}))
        with pytest.raises(OperationalError):
            connection.execute(schema.nodes.delete())
        connection.invalidate()
    assert new.epoch == 2
    engine.dispose()
    old.release()
    new.release()


async def test_a_leader_that_stands_still_with_its_connection_alive_is_replaced(postgres_url: str) -> None:
    old, new = leadership(postgres_url), leadership(postgres_url)
    await old.take(Notify({}))
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("UPDATE leader SET renewed_us = renewed_us - 5000000")
        waiting = asyncio.create_task(new.take(Notify({})))
        await asyncio.to_thread(wait_until, lambda: new.waits_for != "", LIMIT_S, "it stands by")
        admin.execute("UPDATE leader SET renewed_us = renewed_us - 5000000")
    async with asyncio.timeout(LIMIT_S):
        await waiting
        assert await old.until_lost()
    assert new.epoch == 2
    old.release()
    new.release()


async def test_a_leader_that_renews_keeps_its_lease_and_one_that_stood_still_may_not_act(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(leader, "now_s", lambda: now_s[0])
    one = leadership(postgres_url)
    assert not one.may_act()
    await one.take(Notify({}))
    assert one.may_act()
    now_s[0] += leader.LEASE_S
    assert not one.may_act()
    renewing = asyncio.create_task(one.until_lost())
    async with asyncio.timeout(LIMIT_S):
        while not one.may_act():  # noqa: ASYNC110 the product needs no event for this
            await asyncio.sleep(0.01)
    renewing.cancel()
    one.release()


async def test_a_standby_goes_on_waiting_when_the_database_goes_away(postgres_url: str) -> None:
    first, second = leadership(postgres_url), leadership(postgres_url)
    await first.take(Notify({}))
    waiting = asyncio.create_task(second.take(Notify({})))
    await asyncio.to_thread(wait_until, lambda: "leads" in second.waits_for, LIMIT_S, "it stands by")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
    async with asyncio.timeout(LIMIT_S):
        await waiting
    assert second.epoch == 2
    first.release()
    second.release()


async def test_a_standby_of_another_revision_says_so_at_once(postgres_url: str) -> None:
    first, second = leadership(postgres_url), leadership(postgres_url)
    await first.take(Notify({}))
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(WrongRevision, match="9999"):
        await second.take(Notify({}))
    first.release()
    second.release()


async def test_a_lock_that_someone_else_holds_ends_a_statement_and_not_the_service(postgres_url: str) -> None:
    engine = open_database(postgres_url)
    create_tables(engine)
    with engine.connect() as connection:
        shown = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        }
    assert shown == {
        "statement_timeout": "30s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "5s"
    }  # fmt: skip
    store = Store(open_database(postgres_url))
    await store.open()
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="lock timeout"):
            await store.record_hello(Hello("n1", "b", "1", ""), 1)
    await store.record_hello(Hello("n1", "b", "1", ""), 1)
    await store.close()
    engine.dispose()
