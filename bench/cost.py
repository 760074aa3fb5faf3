"""What an agent costs a node: CPU seconds a day, PSS of all its processes, wake-ups, growth.

    python bench/cost.py [--faster 100 3000] [--seconds 66] [--idle-seconds 300] [--soak HOURS]

The agents run as on a live DGX H100: in a mount namespace of their own /sys is that of the recorded one, and
tests/native stands in for NVIDIA's library, so what a driver takes for a call is not in the figures, nor what the
programs do that checks start. The checks run at their shipped periods divided by `--faster`, and what that costs is
scaled back: at a hundred times a process sleeps for 0.6 s where it would for a minute, at three thousand for 20 ms.
What an agent costs whose checks are not due (timers, kernel log, spool) is measured separately, and once more with a
controller, to which it then also sends heartbeats: every 20 s as without a job, and every 5 s as with one.

Most of what a process costs that wakes, does little and sleeps again is memory that is cold by then. How cold is the
machine's affair: on bare metal it is a matter of caches, on a virtual machine whose host takes idle pages away from it
a hundred times as much. So the bench tells what a page costs after each of these pauses, and what an event loop does
that wakes for nothing. Goals: 11 CPU seconds a day, 90 MB. `--soak 72` runs 72 simulated hours and compares memory
before and after. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/e2e/parts"), str(ROOT / "bench")]

from dgx import LiveAgent  # noqa: E402 the path above comes first
from fleet import Fleet  # noqa: E402
from slurm_cluster import wait_until  # noqa: E402

DAY_S = 86_400.0
SETTLE_S = 15.0


class Measured:
    """An agent, and what its processes have used."""

    def __init__(self, folder: Path, faster: float, controller: str = "") -> None:
        self.agent = LiveAgent(folder, controller, faster)
        self.agent.start()
        if controller:
            wait_until(lambda: self.agent.status()["controller"]["connected"], 20, "it is connected")
        time.sleep(SETTLE_S)

    @property
    def pids(self) -> list[int]:
        return [self.agent.program.pid, *self.agent.status()["pids"].values()]

    def cpu_s(self, pids: Iterable[int]) -> float:
        return sum(_cpu_ns(pid) for pid in pids) / 1e9

    def over(self, seconds: float) -> tuple[float, float]:
        """CPU seconds and wake-ups, a second."""
        pids = self.pids
        time.sleep(0.5)  # it has just answered who they are
        cpu, woken, began = self.cpu_s(pids), _wake_ups(pids), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        return (self.cpu_s(pids) - cpu) / took, (_wake_ups(pids) - woken) / took

    def pss_mb(self) -> dict[str, float]:
        names = {self.agent.program.pid: "agent", **{pid: name for name, pid in self.agent.status()["pids"].items()}}
        return {name: _pss_mb(pid) for pid, name in names.items()}


def _cpu_ns(pid: int) -> int:
    """Of all threads, from the scheduler itself: clock ticks are too coarse for an agent that sleeps."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _wake_ups(pids: Iterable[int]) -> int:
    """Voluntary context switches of all threads: each is a sleep that ended."""
    files = [f for pid in pids for f in Path(f"/proc/{pid}/task").glob("*/status")]
    lines = (line for file in files for line in file.read_text().splitlines() if line.startswith("voluntary"))
    return sum(int(line.split()[1]) for line in lines)


def _pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) * 1024 / 1e6


def idle(folder: Path, seconds: float, controllers: list[str]) -> list[tuple[float, float]]:
    """CPU seconds a day and wake-ups a second of an agent whose checks are not due: alone, and with each controller."""
    agents = [Measured(folder / f"agent{n}", 1e-4, address) for n, address in enumerate(["", *controllers])]
    try:
        with ThreadPoolExecutor() as pool:
            measured = list(pool.map(lambda m: m.over(seconds), agents))
    finally:
        for one in agents:
            one.agent.close()
    return [(cpu * DAY_S, woken) for cpu, woken in measured]


async def _wake(times: int, every_s: float) -> float:
    """CPU seconds of one wake-up of an event loop that does nothing."""
    before = _cpu_ns(os.getpid())
    for _ in range(times):
        await asyncio.sleep(every_s)
    return (_cpu_ns(os.getpid()) - before) / 1e9 / times


def page_us(pause_s: float, times: int = 8, pages: int = 2000) -> float:
    """CPU microseconds to read one byte of a page of one's own that nobody has touched for so long."""
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory.write(b"x" * len(memory))

    def touch() -> float:
        before = _cpu_ns(os.getpid())
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place]
        return (_cpu_ns(os.getpid()) - before) / 1e3 / pages

    warm = min(touch() for _ in range(times))
    slept = []
    for _ in range(times):
        time.sleep(pause_s)
        slept.append(touch())
    return max(0.0, statistics.median(slept) - warm)


def checking(folder: Path, faster: float, seconds: float) -> tuple[float, dict[str, float]]:
    """CPU seconds in a second of real time, and PSS by process."""
    measured = Measured(folder, faster)
    try:
        cpu, _ = measured.over(seconds)
        return cpu, measured.pss_mb()
    finally:
        measured.agent.close()


def soak(folder: Path, faster: float, hours: float) -> tuple[dict[str, float], dict[str, float], int]:
    """PSS by process after a tenth of the simulated time and at its end, and the events that wait in memory by then."""
    measured = Measured(folder, faster)
    seconds = hours * 3600 / faster
    try:
        time.sleep(seconds / 10)
        early = measured.pss_mb()
        time.sleep(seconds * 9 / 10)
        return early, measured.pss_mb(), int(measured.agent.status()["spool"]["events"])
    finally:
        measured.agent.close()


def soaked(folder: Path, faster: float, hours: float) -> tuple[str, dict[str, float]]:
    """What to say of a soak, and its figures."""
    early, late, events = soak(folder / "soak", faster, hours)
    totals = round(sum(early.values()), 2), round(sum(late.values()), 2)
    lines = [f"{process:<11} {early.get(process, 0.0):6.1f} -> {mb:6.1f} MB" for process, mb in late.items()]
    lines.append(f"PSS over {hours:g} simulated hours: {totals[0]} -> {totals[1]} MB; {events} events kept")
    return "\n".join(lines), {"soak_h": hours, "early_mb": totals[0], "late_mb": totals[1]}


def _controller(folder: Path, settings: str) -> Fleet:
    """One with the shipped heartbeats, which the tests' controller has not."""
    folder.mkdir()
    fleet = Fleet(folder, os.environ, settings='[scheduler]\nkind = "none"\n')
    file = folder / "controller.toml"
    file.write_text(file.read_text().replace("heartbeat_every_s = 0\n", settings))
    fleet.start_controller()
    return fleet


def cost(folder: Path, factors: list[float], seconds: float, idle_s: float) -> tuple[str, dict[str, float]]:
    """What to say of an agent's cost, and its figures."""
    fleets = [_controller(folder / "idle", ""), _controller(folder / "busy", "idle_heartbeats = 1\n")]
    measured = idle(folder, idle_s, [fleet.address for fleet in fleets])
    for fleet in fleets:
        fleet.close()
    whose = ("alone", "connected, without a job", "connected, with a job")
    lines = [
        f"idle, {who:<25} {cpu:6.1f} CPU s a day, {woken:.2f} wake-ups a second"
        for who, (cpu, woken) in zip(whose, measured, strict=True)
    ]
    (alone, woken), (connected, _), (with_job, _) = measured
    figures = {"alone_s": alone, "connected_s": connected, "with_job_s": with_job, "alone_wakes_per_s": woken}
    for faster in factors:
        busy, pss = checking(folder / f"busy{faster:g}", faster, seconds)
        checks, pause_s = (busy - alone / DAY_S) / faster * DAY_S, 60 / faster
        page, wake_ms = page_us(pause_s), asyncio.run(_wake(10, pause_s)) * 1000
        rounds = seconds * faster / 300
        lines.append(
            f"checks, {faster:g} times as often  {checks:6.1f} CPU s a day, from {rounds:.0f} rounds; "
            f"after {pause_s:g} s a page costs {page:.2f} us here, a wake-up for nothing {wake_ms:.2f} ms"
        )
        figures |= {f"checks_x{faster:g}_s": checks, f"page_x{faster:g}_us": page, f"wake_x{faster:g}_ms": wake_ms}
        figures["pss_mb"] = max(sum(pss.values()), figures.get("pss_mb", 0.0))
        lines.append(
            "PSS: " + ", ".join(f"{n} {mb:.1f}" for n, mb in pss.items()) + f"; in all {sum(pss.values()):.1f} MB"
        )
    return "\n".join(lines), figures


def main() -> int:
    parser = argparse.ArgumentParser(description="what an agent costs a node")
    parser.add_argument("--faster", type=float, nargs="+", default=[100, 3000], help="divide periods by (100 3000)")
    parser.add_argument("--seconds", type=float, default=66.0, help="of each measurement (66: 22 rounds at 100)")
    parser.add_argument("--idle-seconds", type=float, default=300.0, help="of the idle agents (300: all that recurs)")
    parser.add_argument("--soak", type=float, metavar="HOURS", help="simulated time in which memory may not grow")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cost-") as name:
        devnull, out = os.open(os.devnull, os.O_WRONLY), os.dup(1)
        os.dup2(devnull, 1)  # an agent that is closed prints its log
        if arguments.soak:
            said, figures = soaked(Path(name), arguments.faster[0], arguments.soak)
        else:
            said, figures = cost(Path(name), arguments.faster, arguments.seconds, arguments.idle_seconds)
        os.dup2(out, 1)
    print(said)
    print(json.dumps({"bench": "cost", **{key: round(value, 2) for key, value in figures.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
