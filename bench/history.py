"""All reports over 11 months of 2,000 nodes: wall time and memory, and how both grow with the number of jobs.

    python bench/history.py [--sizes 250000 1000000 4000000] [--keep DIR] [--plot DIR]

Aim: 4 million jobs and 200,000 events in at most 60 s and 4 GB on two cores. The history is simulated; making it is
not measured. The last line is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from nodetriage.analysis import simulate
from nodetriage.analysis.plots import model_plots

AIM_S, AIM_GB = 60.0, 4.0
DAYS, NODES, EVENTS = 335, 2000, 200_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250_000, 1_000_000, 4_000_000], metavar="JOBS")
    parser.add_argument(
        "--keep", type=Path, help="make the histories here, and leave them (default: a temporary folder)"
    )
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw the growth into this folder")
    parser.add_argument("--cores", type=int, default=2, help="(default: 2)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = [measure(size, args.keep or Path(folder), args.cores) for size in args.sizes]
    if args.plot:
        plot(measured, args.plot)
    largest = measured[-1]
    met = largest["wall_s"] <= AIM_S and largest["peak_gb"] <= AIM_GB
    print(json.dumps({"bench": "history", "aim_s": AIM_S, "aim_gb": AIM_GB, "met": met, "measured": measured}))
    return 0 if met else 1


def measure(jobs: int, folder: Path, cores: int) -> dict[str, float]:
    """Runs `report all --json` in a process of its own, on so many cores, and says what it took."""
    history = folder / f"jobs-{jobs}"
    rows = make(jobs, history)
    command = [sys.executable, "-m", "nodetriage.analysis.cli.main", "report", "all", "--json"]
    command += ["--jobs", str(history / "jobs.parquet"), "--events", str(history / "events.parquet")]
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    began = time.monotonic()
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        env={**os.environ, "POLARS_MAX_THREADS": str(cores)},
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - began
    if child.returncode:
        raise SystemExit(f"report ended with {child.returncode}")
    found = {
        "jobs": rows["jobs"],
        "events": rows["events"],
        "wall_s": round(wall_s, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gb": round(usage.ru_maxrss / 1e6, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    print(", ".join(f"{k} {v:,}" for k, v in found.items()), flush=True)
    return found


def plot(measured: list[dict[str, float]], folder: Path) -> None:
    """Wall time and peak memory against the number of jobs, with the aims."""
    jobs = [m["jobs"] / 1e6 for m in measured]
    figure, seconds = model_plots.axes(
        "All reports over a history", "million jobs", "wall time [s]", "bench/history.py"
    )
    seconds.plot(jobs, [m["wall_s"] for m in measured], "o-", label="wall time")
    seconds.axhline(AIM_S, linestyle=":", color="tab:blue", label=f"aim {AIM_S:g} s")
    memory = seconds.twinx()
    memory.set_ylabel("peak memory [GB]")
    memory.plot(jobs, [m["peak_gb"] for m in measured], "s--", color="tab:orange", label="peak memory")
    memory.axhline(AIM_GB, linestyle=":", color="tab:orange", label=f"aim {AIM_GB:g} GB")
    for one in (seconds, memory):
        one.set_xlim(left=0)
        one.set_ylim(bottom=0)
    figure.legend(loc="outside right upper")
    model_plots.save(figure, folder, "history-growth")


def make(jobs: int, folder: Path) -> dict[str, int]:
    """The simulated history as two Parquet files, written week by week; made only where it is not there yet."""
    done = folder / "rows.json"
    if done.exists():
        rows: dict[str, int] = json.loads(done.read_text())
        return rows
    folder.mkdir(parents=True, exist_ok=True)
    settings = simulate.Fleet(nodes=NODES, days=DAYS, jobs=jobs, noise_per_1000_node_days=_noise())
    weeks: dict[str, list[Path]] = {"jobs": [], "events": []}
    for number, week in enumerate(simulate.epochs(seed=1, settings=settings)):
        for name, frame in (("jobs", week.jobs), ("events", week.events)):
            weeks[name].append(folder / f"{name}-{number}.parquet")
            frame.write_parquet(weeks[name][-1])
    rows = {}
    for name, parts in weeks.items():
        whole = folder / f"{name}.parquet"
        pl.scan_parquet(parts).sink_parquet(whole)
        rows[name] = pl.scan_parquet(whole).select(pl.len()).collect().item()
        for part in parts:
            part.unlink()
    done.write_text(json.dumps(rows))
    return rows


def _noise() -> float:
    # Faults and users' own errors give some 35,000 events; warnings of the checks make up the rest.
    return (EVENTS - 35_000) / (NODES * DAYS) * 1000


if __name__ == "__main__":
    sys.exit(main())
