"""What a node's heartbeat says of its checks: the report that a node needs before it may come back."""

from datetime import datetime, timedelta

from nodetriage.controller.policy.fleet_state import CheckFact, ChecksReported
from nodetriage.controller.policy.state import NodeFacts


def all_ok(node: NodeFacts, now: datetime, outcome: str = "ok") -> ChecksReported:
    """Every check that found something on the node ran just now, in the present boot."""
    names = sorted({f.check for f in node.findings}) or ["check"]
    ran_at = now + timedelta(milliseconds=1)
    return ChecksReported(node.node, node.boot_id, ran_at, tuple(CheckFact(n, outcome, ran_at) for n in names))
