"""What the controller itself sees is history too: lost nodes, and the jobs on a node at the time of a grave event."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake_slurm import FakeSlurm
from sqlalchemy import select

from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import history, job_hits, schema
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb

OBSERVING = Policy(mode=Mode.OBSERVE)


@asynccontextmanager
async def running(path: Path, slurm: FakeSlurm) -> AsyncIterator[tuple[Store, Reconciler]]:
    store = Store(open_database(f"sqlite:///{path}/h.sqlite"))
    await store.open()
    reconciler = Reconciler(store, slurm, OBSERVING, tick_s=0.02, scan_s=0.05)
    store.on_events(lambda _: reconciler.notify())
    task = asyncio.create_task(reconciler.run())
    try:
        await store.record_hello(Hello("n1", "b", "1.0", "h100"), at_us=1)
        await record(store, pb.EVENT_KIND_AGENT_STARTED, 1)
        await until(lambda: "n1" in reconciler.state.nodes)
        yield store, reconciler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def record(store: Store, kind: Any, seq: int, **more: Any) -> None:
    event = pb.Event(boot_id="b", seq=seq, at_unix_us=1, kind=kind, **more)
    await store.record("n1", [event], received_us=2)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 it is another task's state that changes
            await asyncio.sleep(0.01)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


def faults(reconciler: Reconciler) -> set[str]:
    return {f.fault for f in reconciler.state.nodes["n1"].open_findings}


async def test_a_node_that_slurm_lost_is_an_event_until_it_is_back(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as (store, reconciler):
        slurm.set_down("n1", "Not responding")
        await until(lambda: faults(reconciler) == {"node_lost"})
        (seen,) = await store.read(lambda c: history.open_findings(c))
        assert (seen.event.fault, seen.event.evidence["slurm"].text) == ("node_lost", "down")
        slurm.set_up("n1")
        await until(lambda: not faults(reconciler))
        assert await store.read(lambda c: history.open_findings(c)) == []


async def test_a_silent_agent_is_told_only_after_slurm_was_asked(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as (_, reconciler):
        slurm.set_flag("n1", "powered_down", True)
        await reconciler.contact(["n1"], [])
        node = reconciler.state.nodes["n1"]
        assert (node.silent_since is not None, node.asleep) == (True, True)
        assert faults(reconciler) == set()
        slurm.set_flag("n1", "powered_down", False)
        await until(lambda: faults(reconciler) == {"agent_silent"})
        await reconciler.contact([], ["n1"])
        await until(lambda: not faults(reconciler))


async def test_with_slurm_away_silence_is_taken_in_all_the_same(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as (_, reconciler):
        slurm.down = True
        await reconciler.contact(["n1"], [])
        assert reconciler.state.nodes["n1"].silent_since is not None


async def test_the_jobs_on_a_node_are_kept_at_the_time_of_a_grave_event_even_if_nothing_is_done(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")
    slurm.place("11", "n1", "n2", gpus=16, qos="high", restarts=2)

    async with running(tmp_path, slurm) as (store, reconciler):
        about = {"check": "gpu_xid", "component": "GPU-1", "fault": "gpu_off_bus", "severity": pb.SEVERITY_CRITICAL}
        await record(store, pb.EVENT_KIND_RAISED, 2, **about)
        await until(lambda: reconciler.state.cursor == 2)
        hits: list[Any] = []
        while not hits:
            hits = list(await store.read(lambda c: c.execute(select(schema.job_hits)).all()))
        (hit,) = hits
        job = job_hits.job_of(hit.document)
        assert (hit.incident, hit.node) == ("event-2", "n1")
        assert (job.job, job.gpus, job.qos, job.restarts, job.node_count) == ("11", 16, "high", 2, 2)
