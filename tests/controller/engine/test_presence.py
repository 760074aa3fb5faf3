"""Who should report survives a restart and another controller; a refused agent and a node without one are known."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake_slurm import FakeSlurm
from waiting import eventually

from nodetriage.controller.engine.presence import Agents, Presences
from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import known_nodes
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store

OBSERVING = Policy(mode=Mode.OBSERVE)


@asynccontextmanager
async def running(
    path: Path, slurm: FakeSlurm, agents: Callable[[], Agents], *expected: str
) -> AsyncIterator[tuple[Store, Presences]]:
    store = Store(open_database(f"sqlite:///{path}/h.sqlite"))
    await store.open()
    reconciler = Reconciler(store, slurm, OBSERVING, tick_s=0.02, scan_s=0.05)
    task = asyncio.create_task(reconciler.run())
    try:
        await eventually(lambda: reconciler.poller.seen[1] is not None)
        yield store, Presences(reconciler, lambda: reconciler.poller.seen, agents, "1", expected)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def shown(store: Store) -> dict[str, str]:
    return {name: str(known.presence) for name, known in (await store.read(known_nodes.load)).items()}


async def test_what_is_known_survives_a_restart_of_the_controller(tmp_path: Path) -> None:
    slurm, agents = FakeSlurm("n1", "n2", "n3"), Agents({"n1", "n2"}, {"n2"})
    async with running(tmp_path, slurm, lambda: agents, "login1") as (store, presences):
        for node in ("n1", "n2"):
            await store.record_hello(Hello(node, "b", "1.0", "h100"), at_us=1)
        presences.refuse("n3", "agent 9.0 does not match controller 1.0")
        await presences.survey()
        assert await shown(store) == {"n1": "heard", "n2": "silent", "n3": "refused", "login1": "never"}

    async with running(tmp_path, slurm, lambda: agents, "login1") as (store, presences):
        remembered = await presences.load()
        assert (set(remembered.spoken), set(remembered.silent)) == ({"n1", "n2"}, {"n2"})
        await presences.survey()
        assert (await shown(store))["n3"] == "refused"
        presences.admit("n3")
        agents = Agents({"n1", "n2", "n3"}, set())
        await presences.survey()
        assert await shown(store) == {"n1": "heard", "n2": "heard", "n3": "heard", "login1": "never"}


async def test_the_controllers_word_on_itself_counts_slurms_nodes_and_who_reports(tmp_path: Path) -> None:
    async with running(tmp_path, FakeSlurm("n1", "n2"), lambda: Agents({"n1"}, ())) as (store, presences):
        await presences.survey()
        said: Any = await store.read(known_nodes.load_status)
        status, _ = said
        assert (status.mode, status.scheduler_nodes, status.breaker_open) == ("observe", 2, False)
        assert (status.presences["heard"], status.presences["never"]) == (1, 1)
