"""The backup of docs/operate.md, taken while the controller writes, restores to a database that goes on."""

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest
from opened_store import event, opened
from postgres import _postgres_bin
from sqlalchemy import make_url

from nodetriage.controller.policy.state import FleetState, NodeFacts, NodeState, Step
from nodetriage.controller.store import history, state_store
from nodetriage.controller.store.history import EventFilter
from nodetriage.controller.store.store import Store

AT = state_store.from_us(1_700_000_000_000_000)
STATE = FleetState(cursor=1, nodes={"n1": NodeFacts("n1", NodeState.HEALTHY, AT)})


async def seqs(store: Store) -> list[int]:
    found = await store.read(lambda c: history.events_after(c, EventFilter(), 100_000))
    return [s.event.seq for s in found]


async def filled(url: str, back_up: Callable[[], Awaitable[None]]) -> None:
    """Writes before, during and after the backup."""
    async with opened(url, "n1") as store:
        await store.write(lambda c: state_store.save(c, FleetState(), Step(STATE), AT))
        await store.record("n1", [event(seq) for seq in range(1, 101)], received_us=5)
        backing_up = asyncio.ensure_future(back_up())
        seq = 100
        while not backing_up.done() or seq == 100:
            seq += 1
            await store.record("n1", [event(seq)], received_us=6)
        await backing_up
        await store.record("n1", [event(1000)], received_us=7)


async def goes_on(url: str) -> None:
    async with opened(url) as store:
        stored = await seqs(store)
        assert stored[:100] == list(range(1, 101))
        assert 1000 not in stored
        assert stored == list(range(1, len(stored) + 1))
        assert await store.read(state_store.load) == STATE
        newest = store.newest_id
        await store.record("n1", [event(1000)], received_us=8)
        assert store.newest_id > newest


def put_back(backup: Path, there: Path) -> None:
    for file in there.parent.glob(f"{there.name}*"):
        file.unlink()
    shutil.copy(backup, there)


async def test_a_copy_through_sqlite_restores(tmp_path: Path) -> None:
    there, backup = tmp_path / "history.sqlite", tmp_path / "backup.sqlite"

    def copy() -> None:
        with sqlite3.connect(there) as from_, sqlite3.connect(backup) as to:
            from_.backup(to)  # what `.backup` of the command does
        from_.close()
        to.close()

    await filled(f"sqlite:///{there}", lambda: asyncio.to_thread(copy))
    put_back(backup, there)
    await goes_on(f"sqlite:///{there}")


async def test_a_dump_of_postgresql_restores(postgres_url: str, postgres_server: str, tmp_path: Path) -> None:
    programs, dump = _postgres_bin(), tmp_path / "nodetriage.dump"
    name = str(make_url(postgres_url).database)
    to = ["-h", postgres_server, "-U", "nodetriage"]

    def run(*argv: str) -> None:
        subprocess.run([str(programs / argv[0]), *to, *argv[1:]], check=True, capture_output=True)

    await filled(postgres_url, lambda: asyncio.to_thread(run, "pg_dump", "--format=custom", f"--file={dump}", name))
    restored = f"{name}_restored"
    run("createdb", restored)
    try:
        run("pg_restore", "--exit-on-error", f"--dbname={restored}", str(dump))
        await goes_on(postgres_url.replace(name, restored))
    finally:
        with psycopg.connect(host=postgres_server, user="nodetriage", dbname="postgres", autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {restored} WITH (FORCE)".encode())


@pytest.mark.parametrize("program", ["pg_dump", "pg_restore", "createdb"])
def test_the_page_names_the_programs(program: str) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/operate.md").read_text()
    assert program in page
