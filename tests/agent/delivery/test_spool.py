"""The spool: numbered without gaps, on disk, bounded, and never in the way of the agent."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import eventually

from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.agent.delivery.event import Moment, Unnumbered, make
from nodetriage.agent.delivery.spool import OVERHEAD_BYTES, Spool
from nodetriage.agent.instance_lock import StateInUse, lock
from nodetriage.checks.model import Severity
from nodetriage.service.seq_range import SeqRange

BOOT = "boot-1"
BIG = 1 << 20


def event(text: str = "x", routine: bool = False, boot_id: str = BOOT) -> Unnumbered:
    return Unnumbered(boot_id, text.encode(), routine)


def fault() -> Unnumbered:
    return make(
        Change(Kind.RAISED, "gpu_lost", component="x", fault="gpu_lost", severity=Severity.CRITICAL), BOOT, Moment(1, 2)
    )


def with_spool(
    folder: Path, body: Callable[[Spool], Awaitable[None]], boot_id: str = BOOT, max_bytes: int = BIG
) -> None:
    async def main() -> None:
        spool = Spool(folder, boot_id, max_bytes)
        spool.open()
        try:
            await body(spool)
        finally:
            spool.close(60.0)
            await asyncio.sleep(0)

    asyncio.run(main())


async def durable(spool: Spool, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not all(e.durable for e in spool._events):
        assert time.monotonic() < end, "not committed in time"
        await asyncio.sleep(0.005)


def set_aside(folder: Path) -> bytes:
    """The corrupt file that the spool kept for inspection."""
    (aside,) = folder.glob("spool.sqlite.corrupt-*Z")
    return aside.read_bytes()


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


def texts(spool: Spool) -> list[str]:
    return [e.body.decode() for e in spool.backlog()[0]]


def test_events_are_numbered_from_one_without_gaps_and_go_on_after_a_restart(tmp_path: Path) -> None:
    async def first(spool: Spool) -> None:
        assert spool.append([event("a"), event("b")]) == (1, 2)
        await durable(spool)

    async def second(spool: Spool) -> None:
        assert texts(spool) == ["a", "b"]
        assert spool.append([event("c")]) == (3,)

    with_spool(tmp_path, first)
    with_spool(tmp_path, second)


def test_numbers_go_on_also_when_all_events_were_acknowledged(tmp_path: Path) -> None:
    async def first(spool: Spool) -> None:
        spool.append([event("a")])
        assert spool.ack([SeqRange(BOOT, 1, 1)]) == 1
        assert spool.depth == 0

    async def second(spool: Spool) -> None:
        assert spool.append([event("b")]) == (2,)

    with_spool(tmp_path, first)
    with_spool(tmp_path, second)


def test_a_new_boot_begins_at_one_and_the_old_boots_events_go_first(tmp_path: Path) -> None:
    async def first(spool: Spool) -> None:
        spool.append([event("old")])

    async def second(spool: Spool) -> None:
        assert spool.append([event("new", boot_id="boot-2")]) == (1,)
        await durable(spool)
        assert texts(spool) == ["old", "new"]
        assert spool.ack([SeqRange(BOOT, 1, 9)]) == 1
        assert texts(spool) == ["new"]

    with_spool(tmp_path, first)
    with_spool(tmp_path, second, "boot-2")


def test_what_is_kept_with_an_event_is_there_after_a_restart(tmp_path: Path) -> None:
    async def first(spool: Spool) -> None:
        spool.append([event()], {"verdict": b"v1"})
        spool.append([], {"verdict": b"v2"})

    async def second(spool: Spool) -> None:
        assert spool.kept("verdict") == b"v2"

    with_spool(tmp_path, first)
    with_spool(tmp_path, second)


def test_acknowledged_ranges_may_come_in_any_order(tmp_path: Path) -> None:
    async def body(spool: Spool) -> None:
        spool.append([event(str(i)) for i in range(1, 11)])
        await durable(spool)
        assert spool.ack([SeqRange(BOOT, 9, 10), SeqRange(BOOT, 2, 3), SeqRange("other", 1, 99)]) == 4
        assert texts(spool) == ["1", "4", "5", "6", "7", "8"]
        assert [e.seq for e in spool.since(5, 100)] == [6, 7, 8]
        assert spool.ack([SeqRange(BOOT, 2, 3)]) == 0

    with_spool(tmp_path, body)


def test_a_full_spool_drops_routine_events_before_any_fault_and_counts_both(tmp_path: Path) -> None:
    one = OVERHEAD_BYTES + 1

    async def body(spool: Spool) -> None:
        spool.append([event("f"), *(event("r", routine=True) for _ in range(9))])
        assert not spool.has_dropped
        spool.append([event("g")])
        dropped = spool.take_dropped()
        assert (dropped.routine, dropped.faults) == (2, 0)  # one, and a little room
        spool.append([event("h") for _ in range(12)])
        dropped = spool.take_dropped()
        assert dropped.routine == 7
        assert dropped.faults > 0
        await durable(spool)
        assert set(texts(spool)) == {"h"}
        assert not spool.has_dropped

    with_spool(tmp_path, body, max_bytes=10 * one)


def test_what_tells_of_a_loss_is_not_lost_itself(tmp_path: Path) -> None:
    loss = make(Change(Kind.LOST, "", severity=Severity.WARNING, evidence={"faults": 3}), BOOT, Moment(1, 2))

    async def body(spool: Spool) -> None:
        spool.append([loss, *(fault() for _ in range(8))])
        spool.append([fault() for _ in range(20)])
        assert spool.take_dropped().faults > 0
        assert [e.seq for e in spool._events][:2] == [1, 22]

    with_spool(tmp_path, body, max_bytes=10 * (OVERHEAD_BYTES + len(loss.body)))


def test_a_spool_that_lost_its_memory_takes_numbers_that_the_controller_has_not_seen(tmp_path: Path) -> None:
    async def body(spool: Spool) -> None:
        spool.append([event("a"), event("b")])
        assert spool.agree([SeqRange(BOOT, 1, 40), SeqRange("other", 1, 99)]) == 40
        await durable(spool)
        assert [(e.seq, e.body) for e in spool.backlog()[0]] == [(41, b"a"), (42, b"b")]
        assert spool.append([event("c")]) == (43,)
        assert spool.agree([SeqRange(BOOT, 1, 99)]) == 0  # only the first word of a run counts
        await durable(spool)

    async def after(spool: Spool) -> None:
        assert spool.append([event("d")]) == (44,)

    with_spool(tmp_path, body)
    with_spool(tmp_path, after)


def test_a_spool_that_lost_nothing_keeps_its_numbers_and_drops_what_is_stored(tmp_path: Path) -> None:
    async def first(spool: Spool) -> None:
        spool.append([event("a"), event("b")])
        spool.agree([])

    async def second(spool: Spool) -> None:
        spool.append([event("c")])
        assert spool.agree([SeqRange(BOOT, 1, 1)]) == 0
        await durable(spool)
        assert [(e.seq, e.body) for e in spool.backlog()[0]] == [(2, b"b"), (3, b"c")]

    with_spool(tmp_path, first)
    with_spool(tmp_path, second)


def test_events_made_before_the_first_welcome_are_not_taken_for_others_even_after_a_second_restart(
    tmp_path: Path,
) -> None:
    async def first(spool: Spool) -> None:
        spool.append([event("a")])  # the file is new, nobody was asked, then the agent is killed

    async def second(spool: Spool) -> None:
        assert spool.agree([SeqRange(BOOT, 1, 5)]) == 5
        await durable(spool)
        assert texts(spool) == ["a"]

    with_spool(tmp_path, first)
    with_spool(tmp_path, second)


def test_a_corrupt_file_is_kept_for_inspection_and_a_fresh_one_begun(tmp_path: Path) -> None:
    (tmp_path / "spool.sqlite").write_bytes(b"not a database" * 500)

    async def body(spool: Spool) -> None:
        spool.append([event("a")])
        await durable(spool)
        assert set_aside(tmp_path).startswith(b"not a database")

    async def after(spool: Spool) -> None:
        assert texts(spool) == ["a"]

    with_spool(tmp_path, body)
    with_spool(tmp_path, after)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    with (tmp_path / "small.img").open("wb") as image:
        image.truncate(768 << 10)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", tmp_path / "small.img"], check=True)
    subprocess.run(["mount", "-o", "loop", tmp_path / "small.img", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_said_events_stay_in_memory_and_all_is_written_when_there_is_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodetriage.agent.delivery.writer.RETRY_S", 0.1)

    async def body(spool: Spool) -> None:
        spool.append([event("a")])
        await durable(spool)
        fill(small_disk)
        spool.append([event("b" * 40000)])
        await eventually(lambda: "full" in spool.trouble)
        assert spool.append([event("c")]) == (3,)
        assert [e.seq for e in spool.backlog()[0]] == [1, 2, 3]  # to be sent all the same
        (small_disk / "filler").unlink()
        await durable(spool)
        assert spool.trouble == ""

    async def after(spool: Spool) -> None:
        assert [t[0] for t in texts(spool)] == ["a", "b", "c"]

    with_spool(small_disk, body)
    with_spool(small_disk, after)


def test_a_file_that_is_corrupt_when_the_disk_is_back_loses_nothing_that_is_in_memory(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodetriage.agent.delivery.writer.RETRY_S", 0.3)

    async def body(spool: Spool) -> None:
        spool.append([event("a")], {"verdict": b"v"})
        await durable(spool)
        (small_disk / "garbage").write_bytes(b"garbage" * 100)
        fill(small_disk)
        spool.append([event("b" * 40000)])
        await eventually(lambda: "full" in spool.trouble)
        (small_disk / "garbage").replace(small_disk / "spool.sqlite")  # at once, whenever the next try may come
        for suffix in ("-wal", "-shm"):
            (small_disk / f"spool.sqlite{suffix}").unlink(missing_ok=True)
        (small_disk / "filler").unlink()
        await durable(spool)
        assert set_aside(small_disk) == b"garbage" * 100

    async def after(spool: Spool) -> None:
        assert [t[0] for t in texts(spool)] == ["a", "b"]
        assert spool.kept("verdict") == b"v"

    with_spool(small_disk, body)
    with_spool(small_disk, after)


def test_a_folder_that_cannot_be_written_stops_nothing(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    async def body(spool: Spool) -> None:
        assert spool.append([event("a")]) == (1,)
        assert "spool.sqlite" in spool.trouble
        assert texts(spool) == ["a"]

    with_spool(small_disk, body)


def test_a_spool_that_cannot_be_read_at_the_start_is_taken_up_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodetriage.agent.delivery.writer.RETRY_S", 0.1)
    file = tmp_path / "spool.sqlite"

    async def first(spool: Spool) -> None:
        spool.append([event("a"), event("b")], {"verdict": b"old", "memory": b"old"})
        spool.ack([SeqRange(BOOT, 1, 1)])

    async def second(spool: Spool) -> None:
        assert spool.trouble
        assert spool.append([event("c"), event("d")], {"verdict": b"new"}) == (1, 2)
        (tmp_path / "away").replace(file)  # at once, whenever the next try may come
        await eventually(lambda: not spool.trouble)
        await durable(spool)

    async def third(spool: Spool) -> None:
        assert sorted(texts(spool)) == ["b", "c", "d"]
        assert len({e.seq for e in spool.backlog()[0]}) == 3
        assert (spool.kept("verdict"), spool.kept("memory")) == (b"new", b"old")

    with_spool(tmp_path, first)
    file.rename(tmp_path / "away")
    file.symlink_to(file)
    with_spool(tmp_path, second)
    with_spool(tmp_path, third)


def test_a_frozen_disk_delays_no_caller_and_events_go_out_after_a_moment(
    trial: Path, disk: "object", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodetriage.agent.delivery.spool.COMMIT_LIMIT_S", 3.0)
    folder = trial / "mount" / "state"

    async def body(spool: Spool) -> None:
        spool.append([event("a")])
        await durable(spool)
        disk.freeze()  # type: ignore[attr-defined]
        started = time.monotonic()
        spool.append([event("b")])
        assert time.monotonic() - started < 30  # it is not thawed before
        assert texts(spool) == ["a"]
        while texts(spool) != ["a", "b"]:
            assert time.monotonic() - started < 60
            await asyncio.sleep(0.02)
        disk.thaw()  # type: ignore[attr-defined]
        await durable(spool)

    folder.mkdir()
    with_spool(folder, body)


def test_a_second_agent_on_the_same_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    held = lock(tmp_path / "state")
    try:
        with pytest.raises(StateInUse, match=rf"state: in use by another agent \(pid {os.getpid()}\)"):
            lock(tmp_path / "state")
    finally:
        os.close(held)
    os.close(lock(tmp_path / "state"))


KILLED = """
import asyncio, sys
from pathlib import Path
from nodetriage.agent.delivery.event import Moment, Unnumbered, make
from nodetriage.agent.delivery.spool import Spool
async def main():
    spool = Spool(Path(sys.argv[1]), "boot-1", 1 << 22)
    spool.open()
    while True:
        seq = spool.next_seq
        spool.append([Unnumbered("boot-1", str(seq).encode(), False)], {"last": str(seq).encode()})
        for e in [e for e in spool.backlog()[0] if e.durable][-1:]:
            print(e.seq, flush=True)
        await asyncio.sleep(0.001)
asyncio.run(main())
"""


def test_kill_9_loses_no_event_that_was_on_disk_and_breaks_no_number(tmp_path: Path) -> None:
    for _ in range(3):
        agent = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True)
        assert agent.stdout
        sent = int(agent.stdout.readline())
        for _ in range(random.randrange(20, 200)):
            sent = int(agent.stdout.readline() or sent)
        agent.send_signal(signal.SIGKILL)
        sent = max([sent, *(int(line) for line in agent.stdout.read().splitlines()[:-1])])
        agent.stdout.close()
        agent.wait()

        async def body(spool: Spool, sent: int = sent) -> None:
            events = spool.backlog()[0]
            assert [e.seq for e in events] == list(range(1, len(events) + 1))
            assert [e.body.decode() for e in events] == [str(e.seq) for e in events]
            assert len(events) >= sent, (spool.trouble, sent)
            assert spool.kept("last") == str(len(events)).encode()  # the same transaction
            assert spool.next_seq == len(events) + 1

        with_spool(tmp_path, body, max_bytes=1 << 22)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("append", "ack", "restart")), st.integers(1, 30)), max_size=25))
def test_the_spool_holds_exactly_what_was_appended_and_not_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    expected: dict[int, str] = {}
    made = 0
    todo = [*steps, ("restart", 0)]

    async def body(spool: Spool) -> None:
        nonlocal made
        assert {e.seq: e.body.decode() for e in spool.backlog()[0]} == expected
        while todo:
            step, number = todo.pop(0)
            if step == "restart":
                return
            if step == "append":
                made += 1
                assert spool.append([event(f"e{made}")]) == (made,)
                expected[made] = f"e{made}"
            else:
                spool.ack([SeqRange(BOOT, number, number + 3)])
                for seq in range(number, number + 4):
                    expected.pop(seq, None)

    while todo:
        with_spool(folder, body)
    with_spool(folder, body)
