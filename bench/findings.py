"""How right the findings are: attribution and lemons against planted truth, over many simulated fleets.

    python bench/findings.py [--seeds 20] [--settings FILE]

Prints one line a seed and the totals; the settings (those of `report --settings`) come first. The last line
is one JSON object.
"""

import argparse
import json
import sys
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from nodetriage.analysis import simulate, tables
from nodetriage.analysis.history import attribution, history, study
from nodetriage.analysis.history.attribution import INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL
from nodetriage.analysis.lemons import detector, score, signals

FLEET = simulate.Fleet(nodes=1000, days=90, jobs=200_000)


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs and nodes of one fleet, or of several added up."""

    attributed: int  # by a failed check
    attributed_right: int  # of them, those that a planted fault ended
    failed: int  # ended by a planted fault
    found: int  # of them, those judged to be infrastructure, NODE_FAIL without evidence among them
    blamed: int  # attributed to a node
    blamed_right: int  # to the one that was at fault
    flagged: int
    flagged_right: int
    lemons: int
    nodes: int

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))

    @property
    def shares(self) -> dict[str, float]:
        """Precision and recall of both; NaN where there is nothing to divide by."""
        pairs = {
            "attribution_precision": (self.attributed_right, self.attributed),
            "attribution_recall": (self.found, self.failed),
            "node_precision": (self.blamed_right, self.blamed),
            "lemon_precision": (self.flagged_right, self.flagged),
            "lemon_recall": (self.flagged_right, self.lemons),
            "flagged_share": (self.flagged, self.nodes),
        }
        return {name: count / whole if whole else float("nan") for name, (count, whole) in pairs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="(default: 20)")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="TOML, as for the reports (default: none)")
    args = parser.parse_args()
    settings = study.read_settings(args.settings)
    print(
        f"fleet: {FLEET.nodes} nodes, {FLEET.days} days, about {FLEET.jobs:,} jobs, r_f {FLEET.rf_per_1000_node_days}"
    )
    print(f"{settings.attribution}\n{settings.lemons}")
    total = None
    for seed in range(1, args.seeds + 1):
        found = count(seed, FLEET, settings)
        print_row(str(seed), found)
        total = found if total is None else total + found
    if total is None:
        return 1
    print_row("all", total)
    print(json.dumps({"bench": "findings", "seeds": args.seeds, **total.shares}))
    return 0 if total.shares["lemon_precision"] >= 0.85 else 1


def print_row(name: str, found: Counts) -> None:
    shares = "  ".join(f"{k} {v:.3f}" for k, v in found.shares.items())
    print(f"seed {name:>3}  {shares}", flush=True)


def count(seed: int, fleet: simulate.Fleet, settings: study.Settings) -> Counts:
    """One fleet, judged and compared with its truth."""
    made = simulate.fleet(seed, fleet)
    now = datetime(2100, 1, 1, tzinfo=UTC)
    jobs, events = tables.sound_jobs(made.jobs, now).frame, tables.sound_events(made.events, now).frame
    read = history.of(jobs, events, now)
    judged = attribution.attribute(read, settings.attribution)
    planted = made.truth.failures.select("job_id", "attempt", "cause", pl.col("node").alias("at_fault"))
    ends = judged.ends.join(planted, on=["job_id", "attempt"], how="left")
    true = pl.col("cause") == "infrastructure"
    attributed = ends.filter(pl.col("verdict") == INFRASTRUCTURE)
    infra = ends.filter(pl.col("verdict").is_in((INFRASTRUCTURE, UNATTRIBUTED_NODE_FAIL)))
    blamed = attributed.filter(true & (pl.col("blamed").list.len() > 0))
    flagged = detector.judge(signals.facts(read, judged), read.until, settings.lemons).flagged
    scored = score.score(flagged, made.truth.nodes.filter("lemon")["node"].to_list(), fleet.nodes)
    return Counts(
        attributed=attributed.height,
        attributed_right=attributed.filter(true).height,
        failed=planted.filter(true).height,
        found=infra.filter(true).height,
        blamed=blamed.height,
        blamed_right=blamed.filter(pl.col("blamed").list.contains(pl.col("at_fault"))).height,
        flagged=scored.flagged,
        flagged_right=scored.right,
        lemons=scored.lemons,
        nodes=scored.nodes,
    )


if __name__ == "__main__":
    sys.exit(main())
