"""A controller's brain in a process of its own: takes what is stored, acts on Slurm, ends when nothing is left to do.

python brain_once.py DATABASE
"""

import asyncio
import sys

from sqlalchemy import func, select

from nodetriage.controller import schema
from nodetriage.controller.brain import Brain
from nodetriage.controller.database import open_database
from nodetriage.controller.rules import Policy
from nodetriage.controller.slurm import Slurm
from nodetriage.controller.store import Store


async def main(path: str) -> None:
    store = Store(open_database(f"sqlite:///{path}"))
    await store.open()
    brain = Brain(store, Slurm(timeout_s=10), Policy(), tick_s=0.1, scan_s=1)
    task = asyncio.create_task(brain.run())
    a = schema.actions.c
    undone = select(func.count()).where(a.status.in_(("pending", "started")))
    began = select(func.count()).select_from(schema.actions)
    async with asyncio.timeout(30):
        while not await store.read(lambda c: c.scalar(began)) or await store.read(lambda c: c.scalar(undone)):
            if task.done():
                task.result()
            await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


asyncio.run(main(sys.argv[1]))
