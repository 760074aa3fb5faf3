"""Agents by the thousand on one controller: events/s that are on disk, ack latency, the controller's CPU and memory.

    .venv/bin/python bench/fleet.py --agents 200
    .venv/bin/python bench/fleet.py --agents 100 300 1000 3000 10000 --plot bench/figures/fleet.svg

For each size it starts `nodetriagectl controller` in a temporary folder, connects that many agents (a TCP connection
and a Connect call each), and then has them send heartbeats as real agents do and batches of events, open loop: a batch
is due at its time whether or not the one before is acked. An ack means: on the disk. Generator and controller share the
machine's cores. A row of figures for each size; the last line is one JSON array.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nodes import Agent, Clock, Load, Tally

CTL = str(Path(sys.executable).parent / "nodetriagectl")
CONNECTING = 200  # at the same time
SETTLE_S = 2.0  # after the last welcome
COLUMNS = (
    "agents",
    "events_per_s",
    "ack_p50_ms",
    "ack_p99_ms",
    "heartbeats_per_s",
    "cpu_percent",
    "rss_mib",
    "judged_percent",
    "lost",
)


async def drive(agents: int, load: Load, seconds: float, controller: "Controller") -> dict[str, Any]:
    tally = Tally(agents, asyncio.Event())
    clock, places = Clock(asyncio.Event()), asyncio.Semaphore(CONNECTING)
    started_s = time.monotonic()
    tasks = [asyncio.ensure_future(Agent(f"n{i}", load, tally, places, clock).run()) for i in range(agents)]
    await tally.all_there.wait()
    connect_s = time.monotonic() - started_s
    await asyncio.sleep(SETTLE_S)
    beats, cpu_s, own_s = tally.heartbeats, controller.cpu_s(), _own_cpu_s()
    clock.until_s = time.monotonic() + seconds
    clock.begin.set()
    await asyncio.sleep(seconds)
    judged = controller.judged_events() / max(1, controller.stored_events())
    took = {"cpu_s": controller.cpu_s() - cpu_s, "own_s": _own_cpu_s() - own_s, "beats": tally.heartbeats - beats}
    rss_mib = controller.rss_mib()
    await asyncio.gather(*tasks)
    cuts = statistics.quantiles(tally.ack_s, n=100) if len(tally.ack_s) > 1 else [0.0] * 99
    return {
        "agents": agents,
        "events_per_s": round(tally.acked_events / seconds),
        "ack_p50_ms": round(cuts[49] * 1000, 1),
        "ack_p99_ms": round(cuts[98] * 1000, 1),
        "heartbeats_per_s": round(took["beats"] / seconds),
        "cpu_percent": round(100 * took["cpu_s"] / seconds),
        "rss_mib": round(rss_mib),
        "lost": tally.ended,
        "why": tally.why,
        "connect_s": round(connect_s, 1),
        "generator_cpu_percent": round(100 * took["own_s"] / seconds),
        "judged_percent": round(100 * judged),
        "load": round(os.getloadavg()[0], 1),
        "sent_events": tally.sent_events,
        "acked_events": tally.acked_events,
    }


def _own_cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


class Controller:
    """`nodetriagectl controller` under a folder, on a port of its own, without a scheduler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "controller.toml").write_text(
            f'[controller]\nlisten = "127.0.0.1:0"\nstate_dir = "{folder}"\n[scheduler]\nkind = "none"\n'
        )
        with (folder / "log").open("wb") as log:
            argv = [CTL, "controller", "--config", str(folder / "controller.toml")]
            self.process = subprocess.Popen(argv, stderr=log, stdout=log)
        self.port = self._wait_for_port()

    def _wait_for_port(self) -> int:
        deadline_s = time.monotonic() + 30
        while True:
            said = (self._folder / "log").read_text()
            if "reconciler started" in said and (port := re.search(r"\bport\W+(\d+)", said)):
                return int(port[1])
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(said)
            time.sleep(0.05)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return int(status["VmRSS"].split()[0]) / 1024

    def stored_events(self) -> int:
        return self._count("SELECT count(*) FROM events")

    def judged_events(self) -> int:
        """That the policy has taken."""
        return self._count("SELECT count(*) FROM events WHERE id <= (SELECT cursor FROM reconciler)")

    def _count(self, query: str) -> int:
        connection = sqlite3.connect(self._folder / "history.sqlite")
        (count,) = connection.execute(query).fetchone()
        connection.close()
        return int(count)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(agents: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        controller = Controller(Path(name))
        try:
            every_s = agents * options.batch / options.rate
            load = Load(controller.port, options.batch, every_s, options.heartbeat)
            result = asyncio.run(drive(agents, load, options.seconds, controller))
        finally:
            controller.stop()
        return {**result, "stored_events": controller.stored_events(), "cores": os.cpu_count()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[200])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=5000.0, help="events/s that all agents together send")
    parser.add_argument("--batch", type=int, default=20, help="events in a message")
    parser.add_argument("--heartbeat", type=float, default=5.0, help="seconds between an agent's heartbeats")
    parser.add_argument("--plot", type=Path, help="where to draw the figures over the number of agents")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the controller is stopped all the same
    print("  ".join(f"{name:>{max(8, len(name))}}" for name in COLUMNS))
    results = []
    for agents in options.agents:
        results.append(measure(agents, options))
        print("  ".join(f"{results[-1][name]:>{max(8, len(name))}}" for name in COLUMNS), flush=True)
    if options.plot:
        from figures import draw_fleet

        draw_fleet(results, options.plot)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
