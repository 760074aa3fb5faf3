"""The leader of two controllers fails while it acts: `bench/high_availability/failover.py [--trials 5]`.

Real PostgreSQL, real Slurm, a real agent and two real controllers; root, and the Debian packages of the tests. Kinds:
killed   SIGKILL between the drain at Slurm and the record of it
frozen   SIGSTOP between the decision and scontrol (of the drain and of the requeue in turn), SIGCONT when all is done
stopped  SIGSTOP while it idles, then a fault; SIGCONT when all is done
link     its link to PostgreSQL passes nothing more and stays open, then a fault
A trial is right where one drain and one requeue came of one fault, and the old leader ends by itself. Exit status 1
where one was not. The last line is one JSON object.
"""

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("slurm", "e2e/parts", "controller/parts")]

from fleet import LIMIT_S, START_LIMIT_S, Agent  # noqa: E402 the path above comes first
from link import Link  # noqa: E402
from pair import Pair  # noqa: E402
from postgres import new_database, running_server  # noqa: E402
from slurm_cluster import SlurmCluster, missing, wait_until  # noqa: E402

KINDS = ("killed", "frozen", "stopped", "link")
XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SOCKET = ".s.PGSQL.5432"
DEPOSED = 75


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds are since the leader failed; of a leader that was stopped, `ended` is its status after it went on."""

    kind: str
    leads_s: float
    done_s: float  # the job was requeued, and nothing is left to be done
    drains: int
    requeues: int
    ended: int

    @property
    def right(self) -> bool:
        ends = -signal.SIGKILL if self.kind == "killed" else DEPOSED
        return (self.drains, self.requeues, self.ended) == (1, 1, ends)


class Trial:
    """One pair of controllers with one agent and one job."""

    def __init__(self, kind: str, number: int, cluster: SlurmCluster, folder: Path, server: str, url: str) -> None:
        self.kind, self.number, self.cluster = kind, number, cluster
        (folder / "pg").mkdir()
        self.link = Link(f"unix:{folder}/pg/{SOCKET}", f"unix:{server}/{SOCKET}")
        self.pair = Pair(folder, cluster, url, url.replace(server, f"{folder}/pg"))
        self.agent = Agent(folder / "n1", "n1", f'{self.pair.address("a")}", "{self.pair.address("b")}')

    def run(self) -> Outcome:
        slurm_log = self.cluster.directory / "log/slurmctld.log"
        began = slurm_log.stat().st_size
        job = self.cluster.submit("-w", "n1")
        self.cluster.wait_job(job, "RUNNING")
        self._start()
        failed_s = self._fail()
        self.pair.wait_for_log("b", "leading")
        leads_s = time.monotonic() - failed_s
        wait_until(lambda: self.cluster.job(job)["Restarts"] == "1", LIMIT_S, "the job is requeued")
        undone = "SELECT id FROM actions WHERE status IN ('pending', 'started')"
        wait_until(lambda: not self.pair.rows(undone), LIMIT_S, "nothing is left to be done")
        done_s = time.monotonic() - failed_s
        leader = self.pair.running["a"]
        if leader.status is None:
            leader.send(signal.SIGCONT)
        ended = leader.wait()
        drains = len(re.findall("update_node: node n1 reason set to", slurm_log.read_text()[began:]))
        return Outcome(self.kind, leads_s, done_s, drains, int(self.cluster.job(job)["Restarts"]), ended)

    def close(self) -> None:
        self.link.let_go()
        self.agent.close()
        self.pair.close()
        self.link.close()

    def _start(self) -> None:
        frozen_at = "action.after_start:2" if self.number % 2 else "action.after_start"
        die_at = {"killed": "action.after_drain", "frozen": frozen_at}.get(self.kind, "")
        self.pair.start("a", die_at, "SIGSTOP" if self.kind == "frozen" else "SIGKILL")
        self.pair.wait_for_log("a", "reconciler started")
        self.pair.start("b")
        self.pair.wait_for_log("b", "standing by")
        self.agent.start()
        connected = "the agent is connected to the leader"
        wait_until(lambda: self.agent.status()["controller"]["connected"], START_LIMIT_S, connected)

    def _fail(self) -> float:
        """When the leader failed, by the monotonic clock."""
        leader = self.pair.running["a"]
        if self.kind == "stopped":
            leader.send(signal.SIGSTOP)
        elif self.kind == "link":
            self.link.hold()
        failed_s = time.monotonic()
        self.agent.kernel_log.write(XID_79)
        if self.kind == "killed":
            leader.wait()
            return time.monotonic()
        if self.kind == "frozen":
            wait_until(lambda: is_stopped(leader.pid), LIMIT_S, "the leader stands still")
            return time.monotonic()
        return failed_s


def is_stopped(pid: int) -> bool:
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


def one(kind: str, number: int, cluster: SlurmCluster, server: str) -> Outcome:
    cluster.reset()
    with tempfile.TemporaryDirectory(prefix="failover-") as folder, new_database(server) as url:
        trial = Trial(kind, number, cluster, Path(folder), server, url)
        try:
            return trial.run()
        finally:
            trial.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5, help="of each kind (5)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these")
    options = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, running_server() as server:
        cluster = SlurmCluster(Path(folder), nodes=1)
        try:
            for number in range(options.trials):
                for kind in options.kind or KINDS:
                    outcomes.append(one(kind, number, cluster, server))
                    print(f"{'right' if outcomes[-1].right else 'WRONG'}: {outcomes[-1]}", file=sys.stderr, flush=True)
        finally:
            cluster.stop()
    return report(outcomes)


def report(outcomes: list[Outcome]) -> int:
    for kind in dict.fromkeys(o.kind for o in outcomes):
        some = [o for o in outcomes if o.kind == kind]
        leads, done = sorted(o.leads_s for o in some), sorted(o.done_s for o in some)
        print(
            f"{kind:8} {sum(o.right for o in some)} of {len(some)} right, "
            f"leads after {leads[0]:.1f} to {leads[-1]:.1f} s, all done after {done[0]:.1f} to {done[-1]:.1f} s"
        )
    print(json.dumps({"bench": "failover", "trials": [asdict(o) for o in outcomes]}))
    return 0 if all(o.right for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
