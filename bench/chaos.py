"""A month of 2,000 nodes in which all goes wrong that can, decided by the real policy, in minutes.

    .venv/bin/python bench/chaos.py [--nodes 2000] [--days 30] [--seeds 1 2 3] [--interleavings 1000]

Single faults begin and end as 400 real servers' did; half the fleet falls silent, a file server dies, a bad check is
rolled out, all agents start anew at once, a node flaps, Slurm is away, the controller is killed at random, operators
drain and resume nodes at any moment. Besides: users forge kernel lines (the real checks read them), jobs start on every
node while a file server is lost, Slurm is away for an hour and for a day, parts are missing for a week, Slurm lacks
nodes, another tool resumes nodes, clocks step, agents are reinstalled, yesterday's database is restored; hooks enforce.
Then the month is replayed, from the restore on, with the same policy. Figures are printed for each seed; exit status 1
where a rule was broken. The last line is one JSON object. The world: tests/controller/parts/soak.py and
soak_hardships.py.
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/controller/parts"), str(ROOT / "tests/checks/parts")]

from soak import Soak  # noqa: E402 the path above comes first

from nodetriage.controller.policy.verify import replay  # noqa: E402


def one(nodes: int, days: float, seed: int, interleavings: int) -> dict[str, object]:
    began_s = time.monotonic()
    month = Soak(nodes, days, seed, interleavings).run()
    took_s = time.monotonic() - began_s
    again = replay.run(month.history)
    same = again.actions == month.decided and again.state == month.state
    return {
        "seed": seed,
        **month.report(),
        "actions": len(month.decided),
        "replay_is_the_same": same,
        "simulated_in_s": round(took_s, 1),
        "replayed_in_s": round(time.monotonic() - began_s - took_s, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--days", type=float, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--interleavings", type=int, default=1000)
    options = parser.parse_args()
    figures = []
    for seed in options.seeds:
        figures.append(one(options.nodes, options.days, seed, options.interleavings))
        for name, value in figures[-1].items():
            print(f"{name:28} {value}", flush=True)
    broken = sum(bool(f["broken_rules"]) or not f["replay_is_the_same"] for f in figures)
    print(json.dumps({"nodes": options.nodes, "days": options.days, "broken": broken, "runs": figures}))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
