"""Many nodes' spools and streams in one process: the agent's own code for both, without its checks and workers."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.agent.delivery.event import Moment, make
from nodetriage.agent.delivery.spool import Spool
from nodetriage.agent.delivery.stream import Node, Stream
from nodetriage.checks.model import Outcome, Severity
from nodetriage.v1 import health_pb2 as pb

BOOT = "5d5b1ba5-6bd1-4f9b-a3bf-1d0b9b2a7a11"
SPOOL_BYTES = 16 << 20
GPUS = 8
BACK_OFF_S = (0.1, 0.5)  # far below a real agent's, so that the reconnecting is not what is measured


class SpooledNode:
    """One node. Owned by one event loop, as in an agent."""

    def __init__(self, folder: Path, name: str, addresses: Sequence[str]) -> None:
        folder.mkdir()
        self.name = name
        self.spool = Spool(folder, BOOT, SPOOL_BYTES)
        self.stream = Stream(
            addresses,
            Node(name, BOOT, "0.1.0", "trial"),
            self.spool,
            heartbeat=lambda whole, _: pb.Heartbeat(boot_id=BOOT, partial=not whole, spooled_events=self.spool.depth),
            heartbeat_s=5.0,
            command=self._obey,
            back_off_s=BACK_OFF_S,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.spool.open()
        self._task = asyncio.get_running_loop().create_task(self.stream.run())

    def pass_a_day(self, events: int) -> None:
        """Programs err on eight GPUs, now on one and now on another, and it passes."""
        kinds = (Kind.RAISED, Kind.CLEARED)
        self._append(
            Change(
                kinds[i // GPUS % 2],
                "gpu_xid",
                Outcome.FINDINGS,
                f"old-{i % GPUS}",
                "gpu_xid_application",
                Severity.INFO,
            )
            for i in range(events)
        )

    def lose_gpu(self, component: str) -> int:
        """A grave fault; gives its number."""
        evidence = {"xid": 79}
        return self._append(
            [Change(Kind.RAISED, "gpu_xid", Outcome.FINDINGS, component, "gpu_off_bus", Severity.CRITICAL, evidence)]
        )[-1]

    def _append(self, changes: Iterable[Change]) -> tuple[int, ...]:
        at = Moment(time.time_ns() // 1000, int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6))
        return self.spool.append([make(change, BOOT, at) for change in changes])

    def has_delivered(self, seq: int) -> bool:
        """Whether the event is acknowledged: then the spool has it no more."""
        return all(event.seq != seq for event in self.spool._events)

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.spool.close(10.0)

    @staticmethod
    async def _obey(command: pb.Command) -> pb.CommandResult:
        return pb.CommandResult(id=command.id, done=True)
