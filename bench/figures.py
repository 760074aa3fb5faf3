"""Draws what the benchmarks measured, as SVG: one panel a figure, so that no axis has two units."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

PANELS = (
    ("events/s on disk", ("events_per_s",)),
    ("ack, ms", ("ack_p50_ms", "ack_p99_ms")),
    ("CPU, % of a core", ("cpu_percent", "generator_cpu_percent")),
    ("controller's RSS, MiB", ("rss_mib",)),
)
NAMES = {"ack_p50_ms": "p50", "ack_p99_ms": "p99", "cpu_percent": "controller", "generator_cpu_percent": "generator"}


def draw_fleet(results: Sequence[dict[str, Any]], path: Path) -> None:
    """The results of bench/fleet.py over the number of agents."""
    mpl.rcParams["svg.hashsalt"] = "nodetriage"  # the same picture is the same file
    figure = Figure(figsize=(9, 6), layout="constrained")
    agents = [result["agents"] for result in results]
    for axes, (title, keys) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for key in keys:
            axes.plot(agents, [result[key] for result in results], marker="o", label=NAMES.get(key))
        axes.set(title=title, xlabel="agents", xscale="log", ylim=(0, None))
        axes.grid(alpha=0.3)
        if len(keys) > 1:
            axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
