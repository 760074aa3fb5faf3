"""A small fleet of the real programs: one controller, and on each node an agent with a kernel log of its own."""

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_log import KernelLog
from programs import NODETRIAGE, NODETRIAGECTL, Program
from slurm_cluster import wait_until

from nodetriage.agent.control_socket import ask

START_LIMIT_S = 90.0
LIMIT_S = 90.0  # for what takes a second where the machine does nothing else

# The machine under the test has no GPU, so lines about any count.
TRIAL = "[checks.gpu_xid]\nany_device = true\n"

# For fleets of a few nodes, where the shipped limits would let one go.
NO_DRAIN_LIMITS = """\
[drain_limits]
max_drains_per_hour = 10000
max_nodes = 10000
max_percent = 100
partition_max_nodes = 10000
partition_max_percent = 100
witnessed_max_drains_per_hour = 10000
witnessed_max_nodes = 10000
witnessed_max_percent = 100
"""


class Agent:
    """One node's agent. Stopping and starting it keeps its folder, as a restart of the service does."""

    def __init__(
        self,
        folder: Path,
        node: str,
        controller: str,
        settings: str = "",
        *,
        env: Mapping[str, str] | None = None,
        within: tuple[str, ...] = (),  # a command that runs the rest of its arguments
    ) -> None:
        self.node = node
        self._env, self._within = env, within
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)  # a Slurm hook may have left a note in it already
        self.kernel_log = KernelLog(folder / "kmsg")
        self.settings = folder / "agent.toml"
        self.settings.write_text(
            f'[agent]\nnode = "{node}"\nstate_dir = "{folder}/state"\nrun_dir = "{folder}"\nheartbeat_s = 0.2\n'
            "boot_grace_s = 0\n"
            f'[controller]\naddresses = ["{controller}"]\n[kernel_log]\npath = "{folder}/kmsg"\n{TRIAL}{settings}'
        )
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        assert self._program, "the agent has not been started"
        return self._program

    def spawn(self, log: Path, die_at: str = "") -> Program:
        argv = (*self._within, NODETRIAGE, "agent", "--config", str(self.settings))
        return Program(log, *argv, env=self._env, die_at=die_at, die_when=f"{self.folder}/die")

    def launch(self, die_at: str = "") -> None:
        """Starts it on the kernel log as it is."""
        self._program = self.spawn(self.folder / "log", die_at)

    def start(self, die_at: str = "", wait: bool = True) -> None:
        self.kernel_log.rewind()
        self.launch(die_at)
        if wait:
            wait_until(self.looked, START_LIMIT_S, f"the agent of {self.node} has run every check")

    def status(self) -> dict[str, Any]:
        """What the local socket says. Raises OSError where no agent listens."""
        return ask(self.folder / "agent.sock", {"ask": "status"}, LIMIT_S)

    def looked(self) -> bool:
        try:
            return all(check["outcome"] for check in self.status()["checks"].values())
        except (OSError, ValueError):
            return False

    def check(self, name: str) -> dict[str, Any]:
        return dict(self.status()["checks"][name])

    def close(self) -> None:
        if self._program:
            if self._program.status is None:
                self._program.kill()
            print(f"--- the agent of {self.node} said:\n{self._program.said()[-5000:]}")  # seen if the test failed
        self.kernel_log.close()


class Fleet:
    """A controller on a Unix socket and agents, under one folder. It enforces its policy unless that names a mode."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, policy: str = "", settings: str = "") -> None:
        self.folder = folder
        self.env = env
        self.address = f"unix:{folder}/c.sock"
        self.agents: dict[str, Agent] = {}
        self._controller: Program | None = None
        mode = "" if "mode = " in policy else 'mode = "enforce"\n'
        (folder / "policy.toml").write_text(f"{mode}{policy}")
        own = f'listen = "{self.address}"\nstate_dir = "{folder}/controller"\nheartbeat_every_s = 0\n'
        (folder / "controller.toml").write_text(f"[controller]\n{own}{settings}")

    @property
    def controller(self) -> Program:
        assert self._controller, "the controller has not been started"
        return self._controller

    def spawn_controller(self, log: Path, die_at: str = "") -> Program:
        argv = (NODETRIAGECTL, "controller", "--config", str(self.folder / "controller.toml"))
        return Program(log, *argv, env=self.env, die_at=die_at)

    def start_controller(self, die_at: str = "", wait: bool = True) -> None:
        self._controller = self.spawn_controller(self.folder / "controller.log", die_at)
        if wait:
            wait_until((self.folder / "c.sock").exists, START_LIMIT_S, "the controller listens")

    def add_agent(self, node: str, settings: str = "") -> Agent:
        """A new node's agent, started, and known to the controller."""
        agent = self.agents[node] = Agent(self.folder / node, node, self.address, settings)
        agent.start()
        wait_until(lambda: agent.status()["controller"]["connected"], START_LIMIT_S, f"{node} is connected")
        return agent

    def history(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the controller's database, as they are on disk."""
        file = f"file:{self.folder}/controller/history.sqlite?mode=ro"
        with contextlib.closing(sqlite3.connect(file, uri=True, timeout=LIMIT_S)) as database:
            return database.execute(query, values).fetchall()

    def raised(self, node: str, fault: str) -> int:
        """How often the controller was told that a fault is there."""
        query = "SELECT count(*) FROM events WHERE node = ? AND fault = ? AND kind = 1"
        return int(self.history(query, node, fault)[0][0])

    def gaps(self) -> list[tuple[Any, ...]]:
        """Nodes and boots of which an agent's event is missing: their numbers go from 1 without a gap.

        What the controller itself saw (an agent that is silent for a while) is numbered by the clock.
        """
        return self.history(
            "SELECT node, boot_id, count(*), max(seq) FROM events WHERE boot_id != 'controller' "
            "GROUP BY node, boot_id HAVING count(*) != max(seq)"
        )

    def actions(self) -> list[tuple[Any, ...]]:
        """(kind, node, job, status, outcome), oldest first."""
        return self.history("SELECT kind, node, job, status, outcome FROM actions ORDER BY decided_us")

    def ctl(self, *argv: str) -> Any:
        """What a command of nodetriagectl prints as JSON."""
        argv = (NODETRIAGECTL, *argv, "--config", str(self.folder / "controller.toml"), "--json")
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()
        if self._controller:
            if self._controller.status is None:
                self._controller.kill()
            print(f"--- the controller said:\n{self._controller.said()[-5000:]}")
