"""kill -9 at random moments: `bench/crash.py [--cycles 1000]`. Root, and the Debian packages of tests/slurm.

Rounds of fifty kills, each with a fresh fleet of two agents and a controller on a real Slurm (tests/e2e/parts/
crashes.py says what is written, killed and compared). Exit status 1 where anything was lost or done twice. The last
line is one JSON object.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/e2e/parts")]

from crashes import Crashes, Outcome  # noqa: E402 the path above comes first
from slurm_cluster import SlurmCluster, missing  # noqa: E402

ROUND = 50


def one_round(cluster: SlurmCluster, cycles: int, seed: int) -> Outcome:
    cluster.reset()
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        crashes = Crashes(cluster, Path(folder), seed)
        try:
            return crashes.run(cycles)
        finally:
            crashes.close(tell=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="of the moments and victims; random if not given")
    options = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    seeds = random.Random(options.seed)
    began_s, left, outcomes = time.monotonic(), options.cycles, []
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        cluster = SlurmCluster(Path(folder), nodes=3)
        try:
            while left > 0:
                seed = seeds.randrange(1 << 32)
                outcomes.append(one_round(cluster, min(ROUND, left), seed))
                left -= ROUND
                print(f"seed {seed}: {outcomes[-1]}", flush=True)
        finally:
            cluster.stop()
    return report(outcomes, time.monotonic() - began_s)


def report(outcomes: list[Outcome], took_s: float) -> int:
    names = ("kills", "connected_kills", "lines", "effects")
    faults = ("lost_lines", "repeated_lines", "gaps", "lost_effects", "repeated_effects")
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in (*names, *faults)}
    print(", ".join(f"{sums[name]} {name.replace('_', ' ')}" for name in sums))
    print(json.dumps({"bench": "crash", **sums, "took_s": round(took_s)}))
    return 1 if any(sums[name] for name in faults) else 0


if __name__ == "__main__":
    sys.exit(main())
