"""What soak.py needs: when servers really failed, and a Slurm that notes whose drain is touched."""

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

from fake_slurm import FakeSlurm

from nodetriage.controller.policy.reason import parse_reason

TRACE = Path(__file__).resolve().parents[2] / "analysis/data/infinitehbd/fault_trace.json.xz"
TRACE_NODES, TRACE_DAYS = 400, 348.0
DAY = 86400.0


class WatchfulSlurm(FakeSlurm):
    """Notes who may be right and who may not: nobody's drain but ours may be touched."""

    def __init__(self, *nodes: str) -> None:
        super().__init__(*nodes)
        self.touched: list[str] = []
        self.requeued: dict[tuple[str, int], int] = {}

    async def drain(self, nodes: list[str], reason: str) -> None:  # type: ignore[override]
        self._guard("drain", *nodes)
        await super().drain(nodes, reason)

    async def undrain(self, node: str) -> None:
        self._guard("undrain", node)
        await super().undrain(node)

    async def requeue(self, job: str, *, hold: bool) -> None:
        before = self.held[job].restarts
        await super().requeue(job, hold=hold)
        self.requeued[job, before] = self.requeued.get((job, before), 0) + 1

    def _guard(self, verb: str, *nodes: str) -> None:
        for name in nodes:
            view = self.views[name]
            if not self.down and view.draining and parse_reason(view.reason) is None:
                self.touched.append(f"{verb} {name}: {view.reason}")

    def _busy(self) -> None:
        """Which nodes have a job matters to no rule here, and 2,000 nodes a job are many."""


def recorded_faults(names: list[str], days: float, chance: random.Random) -> Iterator[tuple[float, float, str]]:
    """(begin, end, node) in seconds: for each 400 nodes another part of the year that was recorded."""
    rows = json.loads(lzma.decompress(TRACE.read_bytes()))
    begun: dict[str, list[float]] = {}
    spans = []
    for row in sorted(rows, key=lambda r: r["event_time"]):
        if row["event_type"] == "fault_start":
            begun.setdefault(row["node_id"], []).append(row["event_time"])
        elif begun.get(row["node_id"]):
            spans.append((begun[row["node_id"]].pop(0), row["event_time"], row["node_id"]))
    for first in range(0, len(names), TRACE_NODES):
        group = names[first : first + TRACE_NODES]
        offset = chance.uniform(4, TRACE_DAYS - days)
        place = {n: chance.choice(group) for n in sorted({s[2] for s in spans})}
        for begin, end, node in sorted(spans):
            if offset <= begin < offset + days:
                yield (begin - offset) * DAY + chance.uniform(0, 120), (end - offset) * DAY, place[node]
