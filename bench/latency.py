"""From a kernel line to a drained node: `bench/latency.py [ROUNDS]`. Root, and the Debian packages of tests/slurm.

Every round has a node and an agent of its own, because a GPU that fell off the bus stays so until a reboot. Measured
from before the write into the agent's kernel log to the answer of `scontrol show node` that says DRAIN, so one call of
scontrol (about 5 ms) is in it. The last line is one JSON object.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/e2e/parts")]

from fleet import NO_DRAIN_LIMITS, Agent, Fleet  # noqa: E402 the path above comes first
from slurm_cluster import SlurmCluster, missing, wait_until  # noqa: E402

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LIMIT_S = 20.0
# The same fault on fifty nodes within a minute is just what the controller does not drain for.
ALONE = """
[common_mode]
enabled = false
[breaker]
least_nodes = 10000
"""


def kernel_line_to_drain_s(cluster: SlurmCluster, agent: Agent) -> float:
    began = time.monotonic()
    agent.kernel_log.write(XID_79)
    while "DRAIN" not in cluster.flags(agent.node):
        if time.monotonic() - began > LIMIT_S:
            raise TimeoutError(f"{agent.node} is not drained after {LIMIT_S:g} s")
        time.sleep(0.002)
    return time.monotonic() - began


def measure(folder: Path, rounds: int) -> list[float]:
    """Seconds, one for each round."""
    cluster = SlurmCluster(folder / "slurm", nodes=rounds)
    fleet = Fleet(folder, cluster.env, policy=NO_DRAIN_LIMITS + ALONE)
    found = []
    try:
        fleet.start_controller()
        for node in cluster.nodes:
            job = cluster.submit("-w", node)
            agent = fleet.add_agent(node)
            wait_until(lambda job=job: cluster.job(job)["JobState"] == "RUNNING", LIMIT_S, "the job runs")
            found.append(kernel_line_to_drain_s(cluster, agent))
            print(f"{node}: {found[-1] * 1000:.0f} ms", flush=True)
            agent.close()
    finally:
        fleet.close()
        cluster.stop()
    return found


def main() -> int:
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory(prefix="latency-") as folder:
        found = sorted(measure(Path(folder), rounds))
    p50_s = statistics.median(found)
    p99_s = found[min(len(found) - 1, int(len(found) * 0.99))]
    print(f"kernel line -> DRAIN over {rounds} rounds: p50 {p50_s:.3f} s, p99 {p99_s:.3f} s, worst {found[-1]:.3f} s")
    print(json.dumps({"bench": "latency", "rounds": rounds, "p50_s": round(p50_s, 4), "p99_s": round(p99_s, 4)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
