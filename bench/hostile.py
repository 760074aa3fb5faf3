"""One hostile node among honest ones: `bench/hostile.py [--nodes 20] [--seconds 10] [--attack NAME ...]`.

For each attack of tests/controller/parts/hostile.py: the growth of the controller's memory and disk, and the ack's p99
of honest nodes before and meanwhile. Attacker, honest nodes and controller share the machine's cores. The last line is
one JSON object.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/e2e/parts"), str(ROOT / "tests/controller/parts")]

from fleet_client import AgentStream, agent  # noqa: E402 the path above comes first
from hostile import ATTACKS, HostileTarget, attack, batch  # noqa: E402

from nodetriage.service.version import VERSION  # noqa: E402

PER_S = 20.0  # messages of each honest node


async def talk(stream: AgentStream, seq: int, until_s: float) -> list[float]:
    took_s = []
    while time.monotonic() < until_s:
        began_s, seq = time.monotonic(), seq + 1
        await stream.send(batch(seq, 1))
        await stream.next()
        took_s.append(time.monotonic() - began_s)
        await asyncio.sleep(1 / PER_S)
    return took_s


async def harm(target: str, what: str) -> None:
    async for _ in attack(target, what):
        pass


async def measure(target: HostileTarget, what: str, nodes: int, seconds: float) -> dict[str, Any]:
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(agent(target.target)) for _ in range(nodes)]
        for i, stream in enumerate(streams):
            await stream.hello(f"good{i}", agent_version=VERSION)
        before = await asyncio.gather(*(talk(s, 0, time.monotonic() + seconds) for s in streams))
        rss_mib, disk_mib = target.rss_mib(), target.disk_mib()
        attacking = asyncio.ensure_future(harm(target.target, what))
        meanwhile = await asyncio.gather(*(talk(s, 100_000, time.monotonic() + seconds) for s in streams))
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
        figures = {"rss_growth_mib": target.rss_mib() - rss_mib, "disk_growth_mib": target.disk_mib() - disk_mib}
    for name, found in (("before", before), ("meanwhile", meanwhile)):
        cuts = statistics.quantiles([one * 1000 for node in found for one in node], n=100)
        figures |= {f"p50_{name}_ms": cuts[49], f"p99_{name}_ms": cuts[98]}
    return {name: round(value, 1) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--attack", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    options = parser.parse_args()
    results = {}
    for what in options.attack:
        with tempfile.TemporaryDirectory(prefix="hostile-") as name:
            target = HostileTarget(Path(name))
            try:
                results[what] = asyncio.run(measure(target, what, options.nodes, options.seconds))
            finally:
                target.program.stop()
        print(f"{what:26} " + "  ".join(f"{k} {v}" for k, v in results[what].items()), flush=True)
    print(json.dumps({"bench": "hostile", **results}))


if __name__ == "__main__":
    main()
