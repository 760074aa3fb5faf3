"""The store keeps each event once, answers after the commit, and survives one caller's bad rows."""

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opened_store import BOOT, event, opened

from nodetriage.controller.store import history
from nodetriage.controller.store.database import NoDatabase, open_database
from nodetriage.controller.store.history import EventFilter
from nodetriage.controller.store.mappers import Hello, ranges_of
from nodetriage.controller.store.store import Store, StoreError
from nodetriage.service.seq_range import SeqRange


async def keys(store: Store) -> list[tuple[str, str, int]]:
    found = await store.read(lambda c: history.events_after(c, EventFilter(), 100_000))
    return [(s.node, s.event.boot_id, s.event.seq) for s in found]


async def test_an_event_sent_twice_is_answered_twice_and_stored_once(database_url: str) -> None:
    async with opened(database_url, "n1") as store:
        first = await store.record("n1", [event(1), event(2)], received_us=5)
        again = await store.record("n1", [event(2), event(1), event(3)], received_us=6)
        assert first == [SeqRange(BOOT, 1, 2)]
        assert again == [SeqRange(BOOT, 1, 3)]
        assert await keys(store) == [("n1", BOOT, 1), ("n1", BOOT, 2), ("n1", BOOT, 3)]


async def test_the_whole_message_comes_back_with_fields_that_have_no_column(database_url: str) -> None:
    sent = event(1, occurrences=7, at_boot_us=42)
    sent.evidence["rate_gbps"].real = 99.5
    sent.component = "odd \x00 part"  # a NUL has no place in PostgreSQL's text
    async with opened(database_url, "n1") as store:
        await store.record("n1", [sent], received_us=5)
        [stored] = await store.read(lambda c: history.events_after(c, EventFilter(), 10))
        assert stored.event == sent
        assert stored.received_us == 5


async def test_missing_numbers_show_as_several_ranges(database_url: str) -> None:
    async with opened(database_url, "n1", "n2") as store:
        await store.record("n1", [event(seq) for seq in (1, 2, 3, 7, 8, 11)], received_us=5)
        await store.record("n1", [event(4, boot="other")], received_us=5)
        await store.record("n2", [event(4)], received_us=5)
        stored = await store.record_hello(Hello("n1", BOOT, "0.1.0", "h100"), at_us=9)
        assert stored == [SeqRange(BOOT, 1, 3), SeqRange(BOOT, 7, 8), SeqRange(BOOT, 11, 11)]


async def test_callers_that_wait_together_share_a_commit(sqlite_url: str) -> None:
    names = [f"n{i}" for i in range(100)]
    async with opened(sqlite_url, *names) as store:
        seen: list[int] = []
        store.on_events(seen.append)
        await asyncio.gather(*(store.record(name, [event(1), event(2)], received_us=5) for name in names))
        assert len(await keys(store)) == 200
        assert seen[-1] == store.newest_id
        assert len(seen) < 50  # commits; one each would be 100


async def test_only_the_caller_with_bad_rows_is_refused(database_url: str) -> None:
    async with opened(database_url, "n1") as store:
        answers = await asyncio.gather(
            store.record("n1", [event(1)], received_us=5),
            store.record("never said hello", [event(1)], received_us=5),
            store.record("n1", [event(2)], received_us=5),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [list, StoreError, list]
        assert await keys(store) == [("n1", BOOT, 1), ("n1", BOOT, 2)]


async def test_a_write_that_raises_changes_nothing_and_the_next_one_works(database_url: str) -> None:
    def fails(connection: Any) -> None:
        connection.exec_driver_sql("DELETE FROM events")
        raise RuntimeError("half way")

    async with opened(database_url, "n1") as store:
        await store.record("n1", [event(1)], received_us=5)
        with pytest.raises(RuntimeError, match="half way"):
            await store.write(fails)
        assert len(await keys(store)) == 1
        await store.write(lambda c: c.exec_driver_sql("DELETE FROM events"))
        assert await keys(store) == []
        # A cursor is never given twice, even so.
        last = store.newest_id
        await store.record("n1", [event(2)], received_us=5)
        [stored] = await store.read(lambda c: history.events_after(c, EventFilter(), 10))
        assert stored.cursor > last


async def test_a_full_database_is_an_error_to_the_caller_and_not_the_end_of_the_writer(sqlite_url: str) -> None:
    async with opened(sqlite_url, "n1") as store:
        await store.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1"))
        big = [event(seq, component="x" * 5000) for seq in range(1, 200)]
        with pytest.raises(StoreError, match="full"):
            await store.record("n1", big, received_us=5)
        await store.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1000000"))
        assert await store.record("n1", big, received_us=5) == [SeqRange(BOOT, 1, 199)]


async def test_no_more_callers_than_allowed_wait_in_the_queue(sqlite_url: str) -> None:
    async with opened(sqlite_url, "n1", max_waiting=2) as store:
        await asyncio.gather(*(store.record("n1", [event(seq)], received_us=5) for seq in range(1, 30)))
        assert len(await keys(store)) == 29


async def test_an_urgent_caller_waits_for_no_other(sqlite_url: str) -> None:
    names = [f"n{i}" for i in range(40)]
    async with opened(sqlite_url, *names, "urgent", max_waiting=4, max_group_rows=50) as store:
        batch = [event(seq) for seq in range(1, 51)]
        others = [asyncio.ensure_future(store.record(name, batch, received_us=5)) for name in names]
        await asyncio.sleep(0)
        await store.record("urgent", [event(1)], received_us=5, urgent=True)
        assert sum(task.done() for task in others) < len(others) // 2
        await asyncio.gather(*others)
        assert len(await keys(store)) == 40 * 50 + 1


async def test_waiting_beyond_a_cursor_ends_with_the_next_event(sqlite_url: str) -> None:
    async with opened(sqlite_url, "n1") as store:
        waiting = asyncio.ensure_future(store.beyond(0))
        await store.record("n1", [event(1)], received_us=5)
        assert await waiting == store.newest_id > 0


def test_reading_where_no_controller_ever_ran_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoDatabase, match="no database yet"):
        open_database(f"sqlite:///{tmp_path / 'nothing.sqlite'}", read_only=True)


async def test_a_reader_cannot_write(sqlite_url: str) -> None:
    async with opened(sqlite_url, "n1"):
        engine = open_database(sqlite_url, read_only=True)
        with engine.connect() as connection:
            assert len(history.all_nodes(connection)) == 1
            with pytest.raises(Exception, match="readonly"):
                connection.exec_driver_sql("DELETE FROM nodes")
        engine.dispose()


Batch = tuple[str, list[int]]
batches = st.lists(
    st.tuples(st.sampled_from(["n1", "n2"]), st.lists(st.integers(1, 12), min_size=1, max_size=8)), max_size=12
)


@given(sent=batches, group=st.integers(1, 6))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_interleaving_of_batches_and_repeats_stores_each_event_once(
    tmp_path: Path, sent: Sequence[Batch], group: int
) -> None:
    url = f"sqlite:///{tmp_path / os.urandom(8).hex()}"

    async with opened(url, "n1", "n2", max_group_rows=group, max_waiting=4) as store:
        answers = await asyncio.gather(*(store.record(n, [event(s) for s in seqs], 5) for n, seqs in sent))
        assert sorted(await keys(store)) == sorted({(n, BOOT, s) for n, seqs in sent for s in seqs})
        for (_, seqs), ranges in zip(sent, answers, strict=True):
            assert {s for r in ranges for s in range(r.first, r.last + 1)} == set(seqs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20))))
def test_ranges_name_exactly_the_events_of_a_batch(pairs: list[tuple[str, int]]) -> None:
    ranges = ranges_of([event(seq, boot=boot) for boot, seq in pairs])
    named = [(r.boot_id, seq) for r in ranges for seq in range(r.first, r.last + 1)]
    assert named == sorted(set(pairs))
    assert all(b.boot_id != a.boot_id or b.first > a.last + 1 for a, b in itertools.pairwise(ranges))


def test_what_was_answered_is_on_disk_after_a_kill(tmp_path: Path) -> None:
    """The child prints each number after `record` returned; all it printed must be there after SIGKILL."""
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    program = textwrap.dedent(f"""
        import asyncio, itertools
        from nodetriage.controller.store.database import open_database
        from nodetriage.controller.store.mappers import Hello
        from nodetriage.controller.store.store import Store
        from nodetriage.v1 import health_pb2 as pb
        async def main():
            store = Store(open_database({url!r}))
            await store.open()
            await store.record_hello(Hello("n1", "b", "0.1.0", ""), 1)
            for seq in itertools.count(1):
                await store.record("n1", [pb.Event(boot_id="b", seq=seq)], 5)
                print(seq, flush=True)
        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        answered = [int(line) for _, line in zip(range(200), child.stdout, strict=False)]
        child.send_signal(signal.SIGKILL)
        answered += [int(line) for line in child.stdout.read().split()]
    assert len(answered) >= 200
    with sqlite3.connect(tmp_path / "history.sqlite") as connection:
        stored = [seq for (seq,) in connection.execute("SELECT seq FROM events ORDER BY seq")]
    connection.close()
    assert stored[: len(answered)] == answered
