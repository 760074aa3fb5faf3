"""What one event costs the policy, by the size of the fleet: `bench/policy.py [--nodes 100 1000 10000 100000]`.

Pure: `policy.step` alone, in CPU time. Every node has 20 findings, two of them open. `routine` is a warning on a node,
`grave` a fault that is to be drained and that the limits hold. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import transition, unit_of_work
from nodetriage.controller.policy.state import (
    Event,
    EventKind,
    FindingFact,
    FleetState,
    NodeEvent,
    NodeFacts,
    NodeState,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.limits import CommonMode, DrainLimits
from nodetriage.controller.settings.rules import Mode, Policy

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ROUNDS = 5
POLICY = Policy(
    mode=Mode.ENFORCE, drain_limits=DrainLimits(max_drains_per_hour=1), common_mode=CommonMode(enabled=False)
)


def fleet(size: int) -> FleetState:
    day = NOW - timedelta(days=1)
    known = tuple(
        FindingFact("ib_errors", f"p{k}", "ib_errors", Severity.WARNING, day, day, k + 1, "b", k + 1, is_open=k < 2)
        for k in range(20)
    )
    names = [f"g{i:06}" for i in range(size)]
    node = NodeFacts("", NodeState.HEALTHY, NOW, boot_id="b", version="0.1.0", partitions=("main",), findings=known)
    nodes = {name: replace(node, node=name) for name in names}
    state = FleetState(cursor=1, nodes=nodes, showing=unit_of_work.showing(nodes.values()))
    views = {name: NodeView(name, "idle", partitions=("main",)) for name in names}
    return transition.step(state, SchedulerSeen(NOW, views), NOW, POLICY).state


def raised(cursor: int, node: int, fault: str, severity: Severity) -> NodeEvent:
    event = NodeEvent(
        cursor, f"g{node:06}", "b", 1000 + cursor, NOW, EventKind.RAISED, "gpu_xid", "GPU-1", fault, severity
    )
    return replace(event, version="0.1.0", received_at=NOW)


def cost_us(state: FleetState, events: Callable[[int], Event], count: int) -> float:
    """The median of some rounds, so that what else the machine does counts little."""
    found = []
    for _ in range(ROUNDS):
        now, began_s = state, time.process_time()
        for i in range(count):
            now = transition.step(now, events(i), NOW, POLICY).state
        found.append((time.process_time() - began_s) / count * 1e6)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    options = parser.parse_args()
    results = []
    for size in options.nodes:
        state = fleet(size)
        row = {
            "nodes": size,
            "routine_us": cost_us(state, lambda i: raised(i + 10, i % 90, "gpu_throttled", Severity.WARNING), 2000),
            "grave_us": cost_us(state, lambda i: raised(i + 10, i, "gpu_off_bus", Severity.CRITICAL), 40),
            "tick_us": cost_us(state, lambda _: Tick(), 3),
        }
        results.append({name: round(value, 1) for name, value in row.items()})
        print("  ".join(f"{name} {value}" for name, value in results[-1].items()), flush=True)
    print(json.dumps({"bench": "policy", "rows": results}))


if __name__ == "__main__":
    main()
