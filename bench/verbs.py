"""How long each verb of nodetriagectl takes: `bench/verbs.py [--nodes 10000] [--events 500000] [--incidents 2000]`.

On a SQLite history as a controller makes it: every node with findings that are open, and many that ended.
Each verb is a process of its own, so the start of Python is in it; CPU seconds say more on a busy machine. The last
line is one JSON object.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.state import FindingFact, FleetState, NodeFacts, NodeState, Step
from nodetriage.controller.store import mappers, schema, state_store
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.v1 import health_pb2 as pb

CTL = str(Path(sys.executable).parent / "nodetriagectl")
DAY_US = 86_400_000_000
VERBS = (
    ["nodes"], ["nodes", "--json"], ["node", "g000017"], ["events"], ["events", "--node", "g000017"],
    ["events", "--severity", "critical"], ["events", "--fault", "gpu_off_bus"], ["actions"], ["actions", "--open"],
    ["queue"], ["incidents"], ["incidents", "--since", "30d"], ["poison"], ["database", "current"],
)  # fmt: skip


def event(node: int, seq: int, at_us: int) -> pb.Event:
    """Numbers 1 and 2 are the findings that stay open; then one is raised and cleared again and again."""
    kind = pb.EVENT_KIND_RAISED if seq <= 2 or seq % 2 else pb.EVENT_KIND_CLEARED
    named = {"check": "gpu_throttle", "component": f"GPU-{min(seq, 3)}", "fault": "gpu_throttled"}
    made = pb.Event(boot_id="b", seq=seq, at_unix_us=at_us, kind=kind, severity=pb.SEVERITY_WARNING, **named)
    made.evidence["reasons"].text = f"hw_slowdown thermal {node}"
    return made


def build(folder: Path, nodes: int, events: int, incidents: int) -> None:
    engine = open_database(f"sqlite:///{folder}/history.sqlite")
    create_tables(engine)
    now_us = time.time_ns() // 1000
    names = [f"g{i:06}" for i in range(nodes)]
    statements = mappers.statements("sqlite")
    with engine.begin() as connection:
        rows = [mappers.node_row(mappers.Hello(name, "b", "0.1.0", "h100"), now_us) for name in names]
        connection.execute(statements["hello"], rows)
        for seq in range(1, events // nodes + 1):
            at_us = now_us - 30 * DAY_US + seq * DAY_US // 4
            made = [mappers.event_row(name, event(i, seq, at_us), at_us) for i, name in enumerate(names)]
            connection.execute(statements["events"], made)
    at = state_store.from_us(now_us) - timedelta(days=29)
    facts = {}
    for i, name in enumerate(names):
        found = tuple(
            FindingFact(
                "gpu_throttle", f"GPU-{k}", "gpu_throttled", Severity.WARNING, at, at, (k - 1) * nodes + i + 1, "b", k
            )
            for k in (1, 2)
        )
        facts[name] = NodeFacts(name, NodeState.HEALTHY, at, boot_id="b", findings=found)
    with engine.begin() as connection:
        state_store.save(connection, FleetState(), Step(FleetState(cursor=events, nodes=facts)), at)
        rows = [incident(i, names[i % nodes], now_us - (i % 60) * DAY_US // 2) for i in range(incidents)]
        connection.execute(schema.incidents.insert(), rows)
    engine.dispose()


def incident(number: int, node: str, opened_us: int) -> dict[str, object]:
    named = {"incident": f"261201-{number}", "node": node, "fault": "gpu_off_bus", "component": "GPU-1", "severity": 4}
    times = {"opened_us": opened_us, "drained_us": opened_us + 1_000_000, "closed_us": opened_us + DAY_US}
    return {**named, "causes": "gpu_off_bus", **times}


def took_s(settings: Path, verb: list[str]) -> tuple[float, float]:
    """By the clock, and of one core."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [CTL, *verb, "--config", str(settings)]
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        print(" ".join(verb), done.stderr.decode()[:200])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began_s, cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--incidents", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="verbs-") as name:
        folder = Path(name)
        build(folder, options.nodes, options.events, options.incidents)
        settings = folder / "controller.toml"
        settings.write_text(f'[controller]\nstate_dir = "{folder}"\n[scheduler]\nkind = "none"\n')
        times: dict[str, dict[str, float]] = {}
        for verb in VERBS:
            wall_s, cpu_s = min(took_s(settings, verb) for _ in range(2))
            times[" ".join(verb)] = {"wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2)}
            print(f"{wall_s:6.2f} s, CPU {cpu_s:5.2f} s  {' '.join(verb)}", flush=True)
    print(json.dumps({"bench": "verbs", "nodes": options.nodes, "events": options.events, "took": times}))


if __name__ == "__main__":
    main()
