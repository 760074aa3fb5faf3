"""A day without the controller, then the link is back: `bench/backlog.py [--nodes 50] [--events 300]`.

Real controller, the agents' real spools and streams, 2 ms of latency each way, all on this machine's cores. Prints how
long all events took to be on the controller's disk, and how long new grave faults took meanwhile. The last line is one
JSON object.
"""

import argparse
import asyncio
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/e2e/parts")]

from backlogs import deliver  # noqa: E402 the path above comes first
from fleet import Fleet  # noqa: E402
from link import Link  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--events", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backlog-") as name, contextlib.redirect_stdout(io.StringIO()):
        fleet = Fleet(Path(name), {}, settings='[scheduler]\nkind = "none"\n')
        try:
            fleet.start_controller()
            link = Link(f"unix:{name}/link.sock", fleet.address, latency_s=0.002, up=False)
            try:
                outcome = asyncio.run(deliver(fleet, link, options.nodes, options.events))
            finally:
                link.close()
        finally:
            fleet.close()
    whole = list(range(1, options.events + 1))
    in_order = sum(seqs == whole for seqs in outcome.arrived.values())
    print(
        f"{options.nodes} nodes with {options.events} events each: on disk {outcome.delivered_s:.2f} s after the link"
    )
    print(f"{in_order} nodes' events arrived all, once, in order; new faults took {outcome.fault_s} s meanwhile,")
    print(f"and came before {outcome.overtaken} events of their own nodes' backlogs")
    figures = {"nodes": options.nodes, "events": options.events, "delivered_s": outcome.delivered_s}
    print(json.dumps({"bench": "backlog", **figures, "whole_nodes": in_order, "worst_fault_s": max(outcome.fault_s)}))


if __name__ == "__main__":
    main()
