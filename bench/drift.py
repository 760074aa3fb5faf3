"""Agent, controller and Slurm lose parts of the truth by chance: `bench/drift.py [--interleavings 100000] [--seed 1]`.

Each interleaving is up to 25 happenings on two nodes (faults, repairs, reboots, lost agent states, full spools,
restored and lost databases, operators at Slurm), then one round of looking; the policy and the comparison of open sets
are the real ones. Prints what does not agree afterwards. The last line is one JSON object; the exit status is 1 where
anything disagrees.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/controller/parts"))

from drift import FAULTS, NODES, Drift  # noqa: E402 the path above comes first

OF_NODE = ("reboot", "forget", "drop", "drain", "resume", "undrain")
OF_FLEET = ("send_all", "back_up", "restore", "lose_database", "act", "look")
MOST = 25


def happenings(chance: random.Random) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for _ in range(chance.randrange(MOST)):
        what = chance.choice(("break_", "mend", *OF_NODE, *OF_FLEET))
        about: tuple[object, ...] = () if what in OF_FLEET else (chance.choice(NODES),)
        found.append((what, *about, *((chance.randrange(len(FAULTS)),) if what in ("break_", "mend") else ())))
    return found


def disagreements(history: list[tuple[object, ...]]) -> list[str]:
    world = Drift()
    for what, *about in history:
        getattr(world, str(what))(*about)
    world.round()
    return world.disagreements()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interleavings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, began_s, failed = random.Random(options.seed), time.monotonic(), 0
    for _ in range(options.interleavings):
        history = happenings(chance)
        if found := disagreements(history):
            failed += 1
            print(f"{history}: {found}")
    took_s = round(time.monotonic() - began_s, 1)
    print(f"{options.interleavings} interleavings in {took_s} s, {failed} do not agree after one round")
    figures = {"interleavings": options.interleavings, "seed": options.seed, "disagree": failed, "took_s": took_s}
    print(json.dumps({"bench": "drift", **figures}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
