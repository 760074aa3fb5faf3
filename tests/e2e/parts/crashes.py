"""Agents and a controller under load, one of them killed by SIGKILL again and again at a random moment.

What is true is known without either of them: the lines that were written into the agents' kernel logs, each of which
names a device of its own, the jobs that were submitted, and what slurmctld's log says it was told.
"""

import collections
import contextlib
import io
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from fleet import NO_DRAIN_LIMITS, Agent, Fleet
from slurm_cluster import SlurmCluster, wait_until

JOBS_PER_NODE = 4
LINES_PER_CYCLE = (0, 12)
LIFE_S = (0.0, 0.6)  # between two kills; a start takes longer, so many kills fall into one
CALM_EVERY = 4  # cycles: then the kill waits until all are connected, so that it falls into their work
CALM_LIMIT_S = 40.0  # an agent that often found no controller waits for up to 30 s
CALM_LIFE_S = (0.0, 0.4)  # after lines were written; a log file is looked at five times a second
SETTLE_LIMIT_S = 200.0
XID_31 = "NVRM: Xid (PCI:{component}): 31, pid={number}, name=job, Ch 00000008, MMU Fault"
XID_79 = "NVRM: Xid (PCI:{component}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class LogFile:
    """A kernel log in a file, which an agent reads from its position on, however often it starts."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._file = path.open("ab", buffering=0)
        self._count = 0

    def write(self, text: str) -> None:
        self._count += 1
        now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000  # older ones are history for a first look
        self._file.write(f"3,{self._count},{now_us},-;{text}\n".encode())

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    kills: int
    connected_kills: int  # of them with both agents connected just before
    lines: int
    effects: int  # drains and requeues that had to be
    lost_lines: int
    repeated_lines: int
    gaps: int  # in the numbers of events
    lost_effects: int
    repeated_effects: int
    settled_s: float  # from the last start until everything had arrived and was done

    @property
    def faults(self) -> dict[str, int]:
        names = ("lost_lines", "repeated_lines", "gaps", "lost_effects", "repeated_effects")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class Crashes:
    """Two nodes with jobs, an agent on each, a controller that drains them in a real Slurm."""

    def __init__(self, cluster: SlurmCluster, folder: Path, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._slurm_log = cluster.directory / "log/slurmctld.log"
        self._slurm_log_began = self._slurm_log.stat().st_size
        self._fleet = Fleet(folder, cluster.env, policy=NO_DRAIN_LIMITS)
        nodes = cluster.nodes[:2]
        self._agents = [Agent(folder / node, node, self._fleet.address) for node in nodes]
        self._logs = {agent.node: self._replace_log(agent) for agent in self._agents}
        self._jobs = {n: [cluster.submit("-n1", "-w", n) for _ in range(JOBS_PER_NODE)] for n in nodes}
        self._written: dict[str, list[str]] = {n: [] for n in nodes}  # the parts, by node
        self._sick: set[str] = set()

    @staticmethod
    def _replace_log(agent: Agent) -> LogFile:
        agent.kernel_log.close()
        return LogFile(agent.folder / "kmsg")

    def run(self, cycles: int) -> Outcome:
        """Each cycle writes some lines and kills one program at a random moment."""
        for jobs in self._jobs.values():
            for job in jobs:
                self._cluster.wait_job(job, "RUNNING")
        self._fleet.start_controller()
        for agent in self._agents:
            agent.launch()
        connected = 0
        for cycle in range(cycles):
            calm = cycle % CALM_EVERY == 0 and self._is_calm()
            self._load(cycles)
            time.sleep(self._random.uniform(*CALM_LIFE_S if calm else LIFE_S))  # the moment is what is tested
            self._kill_one()
            connected += calm
        return self._judge(cycles, connected)

    def close(self, tell: bool = True) -> None:
        """Ends all programs; `tell` prints the end of what they said, for a test that failed."""
        for log in self._logs.values():
            log.close()
        with contextlib.nullcontext() if tell else contextlib.redirect_stdout(io.StringIO()):
            for agent in self._agents:
                agent.close()
            self._fleet.close()

    def _load(self, cycles: int) -> None:
        for agent in self._agents:
            written = self._written[agent.node]
            for _ in range(self._random.randint(*LINES_PER_CYCLE)):
                component = f"{len(written):04x}:fe:00"
                written.append(component)
                self._logs[agent.node].write(XID_31.format(component=component, number=len(written)))
            if agent.node not in self._sick and self._random.random() < 3 / cycles:
                self._make_sick(agent.node)

    def _make_sick(self, node: str) -> None:
        """Two GPUs at once: still one drain, and one requeue of each job."""
        self._sick.add(node)
        for component in ("0000:3a:00", "0000:5d:00"):
            self._logs[node].write(XID_79.format(component=component))

    def _is_calm(self) -> bool:
        try:
            wait_until(lambda: all(map(_is_connected, self._agents)), CALM_LIMIT_S, "all are connected")
        except TimeoutError:
            return False
        return True

    def _kill_one(self) -> None:
        victim = self._random.choice([None, *self._agents])
        if victim is None:
            self._fleet.controller.kill()
            self._fleet.start_controller(wait=False)
        else:
            victim.program.kill()
            victim.launch()

    def _judge(self, cycles: int, connected: int) -> Outcome:
        for agent in self._agents:
            if agent.node not in self._sick:
                self._make_sick(agent.node)
        began_s = time.monotonic()
        wait_until(self._has_settled, SETTLE_LIMIT_S, "everything has arrived and is done")
        settled_s = time.monotonic() - began_s
        raised = collections.Counter(self._raised())
        expected = {(node, f"{component}.0") for node, parts in self._written.items() for component in parts}
        expected |= {(node, component) for node in self._sick for component in ("0000:3a:00.0", "0000:5d:00.0")}
        told, restarts = self._drains(), self._restarts()
        return Outcome(
            kills=cycles,
            connected_kills=connected,
            lines=len(expected),
            effects=len(told) + len(restarts),
            lost_lines=len(expected - raised.keys()),
            repeated_lines=sum(count - 1 for count in raised.values()) + len(raised.keys() - expected),
            gaps=len(self._fleet.gaps()),
            lost_effects=[*told.values(), *restarts.values()].count(0),
            repeated_effects=sum(max(0, count - 1) for count in (*told.values(), *restarts.values())),
            settled_s=round(settled_s, 1),
        )

    def _has_settled(self) -> bool:
        try:
            quiet = all(a.looked() and a.status()["spool"]["events"] == 0 for a in self._agents)
        except (OSError, ValueError):
            return False
        expected = sum(len(parts) + 2 for parts in self._written.values())
        return (
            quiet
            and len(set(self._raised())) >= expected
            and 0 not in self._drains().values()
            and 0 not in self._restarts().values()
            and not self._fleet.history("SELECT 1 FROM actions WHERE status IN ('pending', 'started')")
        )

    def _raised(self) -> list[tuple[str, str]]:
        rows = self._fleet.history("SELECT node, component FROM events WHERE kind = 1 AND check_name = 'gpu_xid'")
        return [(node, component) for node, component in rows]

    def _drains(self) -> dict[str, int]:
        """How often slurmctld was told to drain each node, by its own log."""
        said = self._slurm_log.read_text()[self._slurm_log_began :]
        return {a.node: len(re.findall(rf"update_node: node {a.node} reason set to", said)) for a in self._agents}

    def _restarts(self) -> dict[int, int]:
        return {j: int(self._cluster.job(j)["Restarts"]) for jobs in self._jobs.values() for j in jobs}


def _is_connected(agent: Agent) -> bool:
    try:
        return bool(agent.status()["controller"]["connected"])
    except (OSError, ValueError):
        return False
