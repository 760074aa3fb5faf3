"""Two controllers on one PostgreSQL: the one that starts first leads."""

from pathlib import Path

import psycopg
from fleet import NO_DRAIN_LIMITS, START_LIMIT_S
from programs import NODETRIAGECTL, Program
from slurm_cluster import SlurmCluster, wait_until


class Pair:
    """The controllers `a` and `b`, each with a folder of its own. `a_database` is another way to the same database."""

    def __init__(self, folder: Path, cluster: SlurmCluster, database: str, a_database: str = "") -> None:
        self.folder, self.cluster, self.database = folder, cluster, database
        self.running: dict[str, Program] = {}
        for name in "ab":
            (folder / name).mkdir()
            (folder / name / "policy.toml").write_text(f'mode = "enforce"\n{NO_DRAIN_LIMITS}')
            (folder / name / "controller.toml").write_text(
                f'[controller]\nlisten = "{self.address(name)}"\nstate_dir = "{folder}/{name}/state"\n'
                f'database = "{(name == "a" and a_database) or database}"\nheartbeat_every_s = 0\n'
            )

    def address(self, name: str) -> str:
        return f"unix:{self.folder}/{name}/c.sock"

    def start(self, name: str, die_at: str = "", die_by: str = "SIGKILL") -> None:
        folder = self.folder / name
        argv = (NODETRIAGECTL, "controller", "--config", str(folder / "controller.toml"))
        self.running[name] = Program(
            folder / "log", *argv, env={**self.cluster.env, "NODETRIAGE_DIE_BY": die_by}, die_at=die_at
        )

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text()

    def wait_for_log(self, name: str, words: str) -> None:
        wait_until(lambda: words in self.log(name), START_LIMIT_S, f"{name} says {words!r}")

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(query.encode()).fetchall()

    def close(self) -> None:
        for name, program in self.running.items():
            if program.status is None:
                program.kill()
            print(f"--- controller {name} said:\n{self.log(name)[-5000:]}")
