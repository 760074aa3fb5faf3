"""How long a job waits for the hook before it starts, idle and with all cores busy; what ten checks cost elsewhere.

    python bench/prolog.py [--runs 200] [--gpucm VENV] [--nhc CHECKOUT]

The shipped prolog script asks a warm agent that runs all checks as on a DGX H100 (bench/dgx.py); `reuse_s = 0`, so that
each job has the cheap checks run anew. Goals: p50 30 ms, p99 80 ms. VENV has gpucm installed: ten of its checks, one
process each, as it is used. CHECKOUT is NHC's: eleven of its checks. The last line is one JSON object.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/native")]

from dgx import LiveAgent  # noqa: E402 the path above comes first
from hook_program import build, script  # noqa: E402

SETTLE_S = 3.0
GPUCM = (
    "check-nvidia-smi c prolog -c gpu_num",
    "check-storage check-mountpoint c prolog --mountpoint /proc/",
    "check-storage file-exists c prolog -f /etc/hostname",
    "check-storage disk-usage c prolog -v /",
    "check-process check-zombie c prolog",
    "check-service service-status c prolog -s ssh",
    "check-syslogs xid c prolog",
    "check-syslogs io-errors c prolog",
    "check-processor check-buddyinfo c prolog",
    "check-node uptime c prolog",
)
NHC = (
    "check_fs_mount_rw -f /",
    "check_fs_free / 1%",
    "check_fs_ifree / 1k",
    "check_hw_physmem 1k 4TB",
    "check_hw_physmem_free 1MB",
    "check_hw_eth lo",
    "check_ps_loadavg 1000",
    "check_file_test -r -w /dev/null",
    "check_file_contents /proc/sys/kernel/ostype '/Linux/'",
    "check_cmd_status -t 2 -r 0 true",
    "check_cmd_output -t 2 -r 0 -m '/Linux/' uname",
)
JOB = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": "0", "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7", "SLURMD_NODENAME": "n1"}


class Busy:
    """As many processes that only count as there are cores."""

    def __init__(self, processes: int) -> None:
        self._children = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(processes)]

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()


def timed(commands: Sequence[Sequence[str]], runs: int, env: dict[str, str] | None = None) -> dict[str, float]:
    """Wall and CPU milliseconds of running all the commands, one after the other."""
    walls: list[float] = []
    before = _children_cpu_s()
    for _ in range(runs):
        began = time.perf_counter()
        for command in commands:
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        walls.append((time.perf_counter() - began) * 1000)
    walls.sort()
    cpu_ms = (_children_cpu_s() - before) / runs * 1000
    return {
        "p50_ms": walls[len(walls) // 2],
        "p99_ms": walls[min(len(walls) - 1, int(len(walls) * 0.99))],
        "cpu_ms": cpu_ms,
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def nhc(checkout: Path, folder: Path) -> list[str]:
    """NHC's command for its cheap checks, marking nothing."""
    (folder / "nhc.conf").write_text("".join(f"* || {check}\n" for check in NHC))
    own = [f"INCDIR={checkout}/scripts", f"HELPERDIR={checkout}/helpers", f"SYSCONFIGDIR={folder}"]
    own += ["NHC_RM=none", f"RESULTFILE={folder}/status", "MARK_OFFLINE=0"]
    return [f"{checkout}/nhc", "-c", f"{folder}/nhc.conf", "-l", f"{folder}/nhc.log", "-t", "30", *own]


def agent_cpu_s(agent: LiveAgent) -> float:
    pids = [agent.program.pid, *agent.status()["pids"].values()]
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description="what a prolog costs")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--other-runs", type=int, default=10, help="of gpucm and NHC, which take seconds (10)")
    parser.add_argument("--gpucm", type=Path, metavar="VENV", help="where gpucm is installed")
    parser.add_argument("--nhc", type=Path, metavar="CHECKOUT", help="of NHC")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="prolog-") as name:
        folder = Path(name)
        agent = LiveAgent(folder / "n1", settings="[hooks]\nreuse_s = 0\nmode = 'observe'\n")
        hook = script("prolog", build(folder), str(folder / "n1"), folder / "prolog")
        agent.start()
        time.sleep(SETTLE_S)
        try:
            for load, processes in (("idle", 0), ("busy", os.cpu_count() or 1)):
                busy = Busy(processes)
                try:
                    before = agent_cpu_s(agent)
                    ours = timed([[str(hook)]], arguments.runs, JOB)
                    ours["agent_cpu_ms"] = (agent_cpu_s(agent) - before) / arguments.runs * 1000
                    figures[f"nodetriage {load}"] = ours
                    if arguments.gpucm:
                        program = str(arguments.gpucm.resolve() / "bin/health_checks")
                        tail = ["--sink=do_nothing", f"--log-folder={folder}"]
                        ten = [[program, *check.split(), *tail] for check in GPUCM]
                        figures[f"gpucm {load}"] = timed(ten, arguments.other_runs)
                    if arguments.nhc:
                        figures[f"nhc {load}"] = timed([nhc(arguments.nhc.resolve(), folder)], arguments.other_runs)
                finally:
                    busy.close()
            alone = agent.program.status is None and not (folder / "n1/unanswered").exists()
        finally:
            out, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)  # an agent that is closed prints its log
            agent.close()
            sys.stdout.flush()
            os.dup2(out, 1)
    for what, figure in figures.items():
        print(f"{what:<18}" + "  ".join(f"{key.removesuffix('_ms')} {value:8.1f} ms" for key, value in figure.items()))
    print("every hook was answered" if alone else "some hooks were not answered")
    rounded = {what: {key: round(value, 2) for key, value in figure.items()} for what, figure in figures.items()}
    print(json.dumps({"bench": "prolog", "runs": arguments.runs, "answered": alone, **rounded}))
    return 0 if alone else 1


if __name__ == "__main__":
    sys.exit(main())
