"""CPU time of a full warm round of all checks on a recorded DGX H100: `python bench/round.py [ROUNDS]`. Goal: 20 ms."""

import sys
import time
from pathlib import Path
from typing import Any

from nodetriage.agent.host import Host
from nodetriage.agent.run import run
from nodetriage.checks import ALL, profiles

MACHINE = "dgx-h100"
TREE = Path(__file__).parents[1] / "tests/hosts" / MACHINE


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    asked = 0

    def announce(_what: str) -> None:
        nonlocal asked
        asked += 1

    host = Host(TREE, announce=announce)
    policies = profiles.policies(profiles.profiles()[MACHINE], {}, "")
    memories: dict[str, Any] = {}
    spent_s = dict.fromkeys((check.name for check in ALL), 0.0)
    for number in range(rounds + 1):
        if number == 1:  # the first is the warm-up
            asked, spent_s = 0, dict.fromkeys(spent_s, 0.0)
        for check in ALL:
            started_s = time.process_time()
            result = run(check, host.for_check(check, ()), policies[check.name], memories.get(check.name))
            memories[check.name] = result.memory
            spent_s[check.name] += time.process_time() - started_s
    for name, seconds in spent_s.items():
        print(f"{name:<16} {seconds / rounds * 1000:7.3f} ms")
    print(f"{'a round':<16} {sum(spent_s.values()) / rounds * 1000:7.3f} ms CPU, {asked // rounds} reads")


if __name__ == "__main__":
    main()
