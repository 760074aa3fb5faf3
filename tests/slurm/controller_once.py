"""A controller on a real Slurm that is started for a moment, again and again, on a database that stays."""

import asyncio
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reconciler_once
from slurm_cluster import SlurmCluster
from sqlalchemy import Engine, Select, select

from nodetriage.controller.settings.policy_file import load_policy
from nodetriage.controller.store import schema
from nodetriage.v1 import health_pb2 as pb


@dataclass
class Controller:
    path: Path
    engine: Engine
    cluster: SlurmCluster
    policy: str = ""
    events: int = 0

    def tell(
        self, node: str, fault: str, severity: str, kind: str = "RAISED", *, boot: str = "b", at_us: int = 1
    ) -> None:
        """Stores an agent's event, as its stream would."""
        self.events += 1
        with self.engine.begin() as connection:
            known = connection.execute(schema.nodes.update().where(schema.nodes.c.node == node).values(boot_id=boot))
            if not known.rowcount:
                described = {"node": node, "boot_id": boot, "agent_version": "1", "profile": ""}
                connection.execute(schema.nodes.insert().values(**described, first_seen_us=1, last_seen_us=1))
            row = {"check_name": "gpu_xid", "component": "GPU-1", "fault": fault, "message": b""}
            row |= {
                "kind": pb.EventKind.Value(f"EVENT_KIND_{kind}"),
                "severity": pb.Severity.Value(f"SEVERITY_{severity}"),
            }
            at = {"at_us": at_us, "received_us": at_us}
            connection.execute(schema.events.insert().values(node=node, boot_id=boot, seq=self.events, **row, **at))

    def run(self, *, agents_report: bool = True) -> None:
        """Until nothing is left to do. With `agents_report` each agent's heartbeat says that its check is ok."""
        rules = load_policy(self._policy_file())
        asyncio.run(reconciler_once.run(str(self.path), rules, self.cluster.env, agents_report=agents_report))

    def run_process(self, die_at: str = "") -> int:
        """The same in a process of its own; returns how it ended: at the crash point `die_at` by SIGKILL."""
        process = self.start_process(die_at)
        _, stderr = process.communicate(timeout=180)
        assert process.returncode in (0, -signal.SIGKILL), stderr.decode()
        return process.returncode

    def start_process(self, die_at: str = "") -> "subprocess.Popen[bytes]":
        argv = [sys.executable, reconciler_once.__file__, str(self.path), str(self._policy_file())]
        env = {**self.cluster.env, "NODETRIAGE_DIE_AT": die_at}
        return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _policy_file(self) -> Path:
        file = self.path.with_name("policy.toml")
        file.write_text(f'mode = "enforce"\n{self.policy}')
        return file

    def outcomes(self, kind: str = "") -> dict[str, str]:
        """Of what was recorded to be done: id -> outcome. A notice is only shown."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(schema.actions).where(schema.actions.c.kind != "notify")).all()
        return {row.id: row.outcome for row in rows if not kind or row.kind == kind}

    def one(self, query: Select[Any]) -> Any:
        """The first value of the first row; None where there is none."""
        with self.engine.connect() as connection:
            return connection.scalar(query)

    def told(self) -> list[str]:
        """What was said to operators, oldest first."""
        a = schema.actions.c
        with self.engine.connect() as connection:
            rows = connection.execute(select(a.text).where(a.kind == "notify").order_by(a.decided_us))
            return list(rows.scalars())

    def state(self, node: str) -> tuple[str, bool]:
        """(state, whether its drain counts as someone else's)."""
        s = schema.node_states.c
        with self.engine.connect() as connection:
            row = connection.execute(select(s.state, s.theirs).where(s.node == node)).one()
        return row.state, bool(row.theirs)


def log_of(cluster: SlurmCluster) -> str:
    return (cluster.directory / "log/slurmctld.log").read_text()


def submit_running(cluster: SlurmCluster, *options: str) -> int:
    job = cluster.submit(*options)
    cluster.wait_job(job, "RUNNING")
    return job
