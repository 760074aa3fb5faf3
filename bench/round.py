"""CPU time of a full warm round of all checks on the recorded DGX H100 (goal: 20 ms), and what ten cost elsewhere.

    python bench/round.py [--rounds N] [--gpucm VENV]

The recorded machine answers for NVML from a file, so what the driver itself takes for a call is not in the figure.

VENV is a virtual environment into which somebody installed gpucm, Meta's command line tool for health checks, which
runs one check a process. It then runs ten checks whose like we have, those of GPUs on the stand-in for the library of
NVIDIA in tests/native, which answers for eight healthy GPUs. The last line is one JSON object with all figures.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.workers.run import run
from nodetriage.checks.registry import ALL

ROOT = Path(__file__).parents[1]
MACHINE = "dgx-h100"
GOAL_MS = 20.0
GPUS = 8
# gpucm's arguments, and the check of ours that looks at the same.
TEN = (
    ("check-nvidia-smi -c gpu_num bench nagios --gpu_num=8", "gpu_lost"),
    ("check-nvidia-smi -c ecc_uncorrected_volatile_total bench nagios", "gpu_ecc"),
    ("check-nvidia-smi -c row_remap_pending bench nagios", "gpu_remap"),
    ("check-nvidia-smi -c gpu_retired_pages bench nagios", "gpu_retired_pages"),
    ("check-nvidia-smi -c gpu_temperature bench nagios --gpu_temperature_threshold=85", "gpu_thermal"),
    ("check-nvidia-smi -c running_procs bench nagios", "gpu_processes"),
    ("check-nvidia-smi -c vbios_mismatch bench nagios", "gpu_driver"),
    ("check-syslogs xid bench nagios", "gpu_xid"),
    ("check-storage mounted-directory bench nagios --directory=/", "fs_mounts"),
    ("check-storage disk-usage bench nagios --volume=/", "fs_full"),
)


def ours(rounds: int) -> tuple[dict[str, float], int]:
    """CPU milliseconds of each check in a warm round, and how many files were read in it."""
    asked = 0

    def announce(_what: str) -> None:
        nonlocal asked
        asked += 1

    host = Host(ROOT / "tests/hosts" / MACHINE, announce=announce)
    checks = with_profile(defaults(ALL), host, MACHINE).enabled
    memories: dict[str, Any] = {}
    spent_s = dict.fromkeys((check.name for check in ALL), 0.0)
    for number in range(rounds + 1):
        if number == 1:  # the first is the warm-up
            asked, spent_s = 0, dict.fromkeys(spent_s, 0.0)
        for check in checks:
            started_s = time.process_time()
            result = run(check, host.for_check(check, ()), check.policy, memories.get(check.name))
            memories[check.name] = result.memory
            spent_s[check.name] += time.process_time() - started_s
    return {name: seconds / rounds * 1000 for name, seconds in spent_s.items()}, asked // rounds


def theirs(venv: Path) -> dict[str, dict[str, float]]:
    """CPU and wall milliseconds of one process for each of the ten, by the name of our check; and how it ended."""
    sys.path.insert(0, str(ROOT / "tests/native"))
    from nvml_library import FakeGpus, build

    program = venv / "bin/health_checks"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        gpus = FakeGpus(build(Path(folder) / "library"), Path(folder) / "state", GPUS)
        for arguments, name in TEN:
            before, started_s = children_cpu_s(), time.perf_counter()
            done = subprocess.run(
                [program, *arguments.split()],
                env={**os.environ, **gpus.environment},
                cwd=folder,  # it makes a folder for its log
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            wall_ms = (time.perf_counter() - started_s) * 1000
            found[name] = {"cpu_ms": (children_cpu_s() - before) * 1000, "wall_ms": wall_ms, "exit": done.returncode}
    return found


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="rounds to take the mean of")
    parser.add_argument("--gpucm", type=Path, metavar="VENV", help="virtual environment with gpucm, to compare")
    options = parser.parse_args()
    spent_ms, reads = ours(options.rounds)
    for name, one_ms in spent_ms.items():
        print(f"{name:<18} {one_ms:7.3f} ms")
    round_ms = sum(spent_ms.values())
    print(f"{'a round':<18} {round_ms:7.3f} ms CPU, {reads} reads; goal {GOAL_MS:g} ms")
    figures: dict[str, Any] = {
        "machine": MACHINE, "checks": len(ALL), "rounds": options.rounds, "round_cpu_ms": round(round_ms, 3),
        "goal_ms": GOAL_MS, "reads": reads, "check_cpu_ms": {n: round(ms, 4) for n, ms in spent_ms.items()},
    }  # fmt: skip
    if options.gpucm:
        same = theirs(options.gpucm)
        for name, one in same.items():
            print(f"gpucm's {name:<18} {one['cpu_ms']:7.1f} ms CPU, {one['wall_ms']:7.1f} ms, exit {one['exit']:.0f}")
        ten_ms = sum(one["cpu_ms"] for one in same.values())
        like_ms = sum(spent_ms.get(name, 0.0) for name in same)
        print(f"ten checks: gpucm {ten_ms:.0f} ms CPU, ours {like_ms:.3f} ms")
        figures |= {
            "gpucm_ten_cpu_ms": round(ten_ms, 1),
            "gpucm_ten_wall_ms": round(sum(one["wall_ms"] for one in same.values()), 1),
            "gpucm_exits": {name: int(one["exit"]) for name, one in same.items()},
            "ours_same_ten_cpu_ms": round(like_ms, 3),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
