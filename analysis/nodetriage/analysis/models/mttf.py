"""Mean time to failure as a model: a job on N nodes fails at N times the rate of one node (arXiv 2410.21680).

The measured counterpart is in rates.py. Job-level MTTF is in hours of the job; node-level MTTF in node-days.
"""

from collections.abc import Mapping
from types import MappingProxyType

from nodetriage.analysis.models.figure import Figure, not_negative, positive

HOURS = 24.0
GPUS_PER_NODE = 8


def theory_h(nodes: float, rf_per_1000_node_days: float) -> float:
    """MTTF of a job in hours: 24 / (N rf). Raises OutOfDomain."""
    positive(nodes=nodes, rf_per_1000_node_days=rf_per_1000_node_days)
    return HOURS * 1000 / (nodes * rf_per_1000_node_days)


def expected_failures(nodes: float, rf_per_1000_node_days: float, hours: float) -> float:
    """Failures to expect of a job within so many hours of running. Raises OutOfDomain."""
    positive(nodes=nodes)
    not_negative(rf_per_1000_node_days=rf_per_1000_node_days, hours=hours)
    return nodes * rf_per_1000_node_days / 1000 * hours / HOURS


def nodes_for(gpus: int, gpus_per_node: int = GPUS_PER_NODE) -> int:
    """Whole nodes that a job of so many GPUs takes, where its allocation is not known."""
    positive(gpus=gpus, gpus_per_node=gpus_per_node)
    return -(-gpus // gpus_per_node)


def projection(nodes: float, rf_per_1000_node_days: float, largest_nodes_seen: float | None = None) -> Figure:
    """Job MTTF at any size; beyond the largest size that the rate was fitted on, the result says so."""
    value = theory_h(nodes, rf_per_1000_node_days)
    notes: tuple[str, ...] = ()
    if largest_nodes_seen is not None and nodes > largest_nodes_seen:
        notes = (f"extrapolated: the largest jobs seen had {largest_nodes_seen:g} nodes",)
    return Figure("job-level MTTF", value, "h", notes=notes)


# Failures per 1000 node-days of clusters in print, to set one's own figure beside. They do not count the same things.
PUBLISHED: Mapping[str, tuple[float, str]] = MappingProxyType(
    {
        "RSC-1": (6.50, "16,384 A100, jobs > 128 GPUs, arXiv 2410.21680"),
        "InfiniteHBD trace": (4.1954, "400 GPU servers, all faults, 584 in 348 d, arXiv 2502.03885"),
        "Llama 3 405B": (3.7887, "16,384 H100, 419 unplanned stops in 54 d, arXiv 2407.21783"),
        "RSC-2": (2.34, "8,192 A100, jobs > 128 GPUs, arXiv 2410.21680"),
        "512 H100": (2.2321, "one failure in 7 d on 64 nodes, as quoted by its operators"),
        "target": (2.0, "two failures a day per 8,000 GPUs, a design goal"),
    }
)
