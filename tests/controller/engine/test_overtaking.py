"""Time, orders and critical findings wait for no backlog: they pass it between two batches of events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from opened_store import BOOT, event
from sqlalchemy import func, select

from nodetriage.controller.engine import inputs, overtaking
from nodetriage.controller.engine.reconciler import EVENTS_AT_ONCE, Reconciler
from nodetriage.controller.policy.state import EventKind, FleetState
from nodetriage.controller.policy.verify import replay
from nodetriage.controller.scheduler import NoScheduler
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.store import schema, state_store
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello, event_row
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb

WARNING, CRITICAL = pb.SEVERITY_WARNING, pb.SEVERITY_CRITICAL


def routine(seq: int) -> pb.Event:
    kind = pb.EVENT_KIND_RAISED if seq % 2 else pb.EVENT_KIND_CLEARED
    return event(seq, kind=kind, severity=WARNING, check="gpu_throttle", fault="gpu_throttled")


@asynccontextmanager
async def backlog(path: Path, count: int) -> AsyncIterator[Store]:
    """A store with so many routine events of n1, which nobody has taken yet."""
    store = Store(open_database(f"sqlite:///{path}/h.sqlite"))
    await store.open()
    try:
        for node in ("n1", "n2"):
            await store.record_hello(Hello(node, BOOT, "0.1.0", "h100"), at_us=1)
        for first in range(0, count, 1000):
            await store.record("n1", [routine(first + i + 1) for i in range(1000)], received_us=5)
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


async def until_known(reconciler: Reconciler, node: str) -> FleetState:
    await until(lambda: node in reconciler.state.nodes)
    return reconciler.state


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Reconciler]:
    reconciler = Reconciler(store, NoScheduler(), Policy(), tick_s=0.05)
    store.on_events(lambda _: reconciler.notify())
    store.on_urgent = reconciler.overtaking.hear
    task = asyncio.create_task(reconciler.run())
    try:
        yield reconciler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_critical_finding_passes_a_backlog_that_was_there_at_the_start(tmp_path: Path) -> None:
    async with backlog(tmp_path, 20_000) as store:
        await store.record("n2", [event(1)], received_us=5)
        async with running(store) as reconciler:
            state = await until_known(reconciler, "n2")
            assert state.cursor < 20_000 - EVENTS_AT_ONCE
            assert [f.fault for f in state.nodes["n2"].open_findings] == ["gpu_lost"]


async def test_a_critical_finding_that_comes_later_passes_what_waits(tmp_path: Path) -> None:
    async with backlog(tmp_path, 20_000) as store, running(store) as reconciler:
        await until_known(reconciler, "n1")
        await store.record("n2", [event(1)], received_us=5, urgent=True)
        assert (await until_known(reconciler, "n2")).cursor < 20_000


async def test_a_routine_finding_passes_nothing(tmp_path: Path) -> None:
    async with backlog(tmp_path, 5_000) as store, running(store) as reconciler:
        await store.record("n2", [event(1, severity=WARNING)], received_us=5, urgent=True)
        assert (await until_known(reconciler, "n2")).cursor >= 5_000


async def test_a_fault_that_has_ended_since_is_taken_with_its_end(tmp_path: Path) -> None:
    async with backlog(tmp_path, 5_000) as store:
        later = [event(1), event(2, kind=pb.EVENT_KIND_CLEARED), event(3, fault="gpu_off_bus", component="GPU-2")]
        await store.record("n2", later, received_us=5)
        rows, newest = await store.read(lambda c: overtaking.waiting_after(c, 0))
        waiting = overtaking.Overtaking()
        waiting.hear(rows, newest)
        [first, second] = waiting.take(0)
        found = await store.read(lambda c: overtaking.events_of(c, [first], 0))
        assert [(e.seq, e.kind, e.overtakes) for e in found] == [
            (1, EventKind.RAISED, True), (2, EventKind.CLEARED, True)
        ]  # fmt: skip
        assert second.fault == "gpu_off_bus"
        assert waiting.take(0) == ()


async def test_what_is_part_of_the_next_batch_anyway_passes_nothing() -> None:
    waiting = overtaking.Overtaking()
    waiting.hear([event_row("n1", event(1), 5)], 800)
    assert waiting.take(1000) == ()


async def test_each_event_counts_once_and_a_replay_comes_to_the_same_state(tmp_path: Path) -> None:
    async with backlog(tmp_path, 5_000) as store:
        await store.record("n2", [event(1), event(2, kind=pb.EVENT_KIND_REPEATED)], received_us=5)
        async with running(store) as reconciler:
            await until(lambda: reconciler.state.cursor >= 5_002)
            await reconciler.settled()
            state = reconciler.state
        [finding] = state.nodes["n2"].findings
        assert finding.times == 2
        kinds = select(schema.inputs.c.kind, func.count()).group_by(schema.inputs.c.kind)
        assert dict(list(await store.read(lambda c: list(c.execute(kinds)))))["overtook"] == 1

        whole = await store.read(lambda c: replay.run(inputs.history(c, state_store.EPOCH)))
        assert whole.state is not None
        assert whole.state.nodes == state.nodes


async def test_ticks_and_a_new_policy_come_between_batches(tmp_path: Path) -> None:
    async with backlog(tmp_path, 30_000) as store, running(store) as reconciler:
        await until_known(reconciler, "n1")
        new = Policy(return_hold_s=1234.0)
        reconciler.set_policy(new)
        await until(lambda: reconciler.rules.return_hold_s == 1234.0)
        assert reconciler.state.cursor < 30_000
