"""A controller's reconciler: takes what is stored, acts on Slurm, ends when nothing is left to do.

In a process of its own, which can be killed: python reconciler_once.py DATABASE POLICY
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import func, select

from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.policy.state import Tick
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.policy_file import load_policy
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.slurm.client import Slurm
from nodetriage.controller.store import schema, state_store
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Seen
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2

LIMIT_S = 120


class Counted(Slurm):
    """Slurm, and how often all its nodes were read."""

    looks = 0

    async def nodes(self) -> Mapping[str, NodeView]:
        seen = await super().nodes()
        self.looks += 1
        return seen


async def run(
    path: str, policy: Policy, environment: Mapping[str, str] | None = None, *, agents_report: bool = True
) -> None:
    """Raises TimeoutError where something is left to do after LIMIT_S."""
    store = Store(open_database(f"sqlite:///{path}"))
    await store.open()
    slurm = Counted(timeout_s=30, environment=environment)
    reconciler = Reconciler(store, slurm, policy, tick_s=0.1, scan_s=0.2)
    task = asyncio.create_task(reconciler.run())
    a = schema.actions.c
    undone = select(func.count()).where(a.status.in_(("pending", "started")))

    def ok_now(node: str) -> Seen:
        """Each node's heartbeat: its only check ran just now, and is ok."""
        at_us = state_store.to_us(reconciler.now())
        beat = health_pb2.Heartbeat(boot_id=reconciler.state.nodes[node].boot_id)
        beat.checks.add(check="gpu_xid", outcome=health_pb2.OUTCOME_OK, age_ms=0)
        return Seen(node, 0.0, at_us, beat, at_us)

    async def all_is_done() -> bool:
        if (
            slurm.looks < 3 or reconciler.state.cursor < store.newest_id
        ):  # the last look began after nodes that were new at the first had reported
            return False
        if agents_report:
            await reconciler.checks_heard(ok_now)
        await reconciler.post(Tick())
        return not await store.read(lambda c: c.scalar(undone))

    async with asyncio.timeout(LIMIT_S):
        while not await all_is_done():
            if task.done():
                task.result()
            await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], load_policy(Path(sys.argv[2]))))
