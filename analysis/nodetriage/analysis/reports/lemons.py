"""The report `lemons`: which nodes to take out for repair, why, and what that would save."""

import shlex
from collections.abc import Collection

import polars as pl

from nodetriage.analysis.history.study import Study
from nodetriage.analysis.lemons import detector, score
from nodetriage.analysis.lemons.signals import SIGNALS
from nodetriage.analysis.reports.section import Section


def lemons_report(study: Study) -> list[Section]:
    """The recommendation with a paragraph for each node, the thresholds, earlier windows, the effect, root causes."""
    judged, facts = study.judged, study.facts
    s = judged.settings
    table = judged.nodes.filter("flagged").sort("p", "node").select("node", *SIGNALS, "occasions", "expected", "p", "q")
    notes = (
        f"{s.window_days} days to {judged.until:%Y-%m-%d %H:%M} UTC; {table.height} of {judged.nodes.height} nodes"
        f" ({table.height / max(judged.nodes.height, 1):.1%})",
        f"flagged: {s.least_failures} or more occasions and q at most {s.false_discovery_rate:g} (Poisson tail against"
        f" all other nodes, Benjamini-Hochberg), or signals of {s.least_kinds} kinds beyond the fleet's"
        f" {s.percentile:.0%} point; exclusions by users never flag",
        "a recommendation: this report changes no node" + _command(judged.flagged),
    )
    texts = tuple(score.explain(judged, facts, node) for node in judged.flagged)
    limits = pl.DataFrame(
        {"signal": list(judged.thresholds), "stands_out_from": list(judged.thresholds.values())},
        schema={"signal": pl.String, "stands_out_from": pl.Float64},
    )
    study.progress("lemons, window by window")
    earlier = detector.rolling(facts, study.history.since, study.history.until, s)
    return [
        Section("lemons", "Nodes recommended for the Lemon state", table, notes, texts=texts),
        Section("lemon_thresholds", "The value from which a signal stands out in this fleet", limits),
        Section("lemons_rolling", f"Nodes flagged in any window of {s.window_days} days", earlier),
        _effect(study),
        Section("root_causes", "What repairs found", score.root_causes(study.history)),
    ]


def _command(flagged: Collection[str]) -> str:
    if not flagged:
        return ""
    return f". To act on it: nodetriagectl lemon set {shlex.quote(','.join(sorted(flagged)))} --reason 'lemon report'"


def _effect(study: Study) -> Section:
    found = score.without(study.history, study.attributed, study.judged.flagged)
    row = {
        "large_jobs": [found.before],
        "failed": [found.before_failed],
        "failed_without_flagged_nodes": [found.after_failed],
        "points_fewer": [found.points],
        "relative_reduction": [found.relative],
    }
    schema = dict.fromkeys(row, pl.Float64) | dict.fromkeys(list(row)[:3], pl.Int64)
    notes = (
        f"runs of {score.LARGE_GPUS} GPUs and more; without the flagged nodes, the failures attributed to them"
        " alone would not have happened (an upper bound: other nodes would have taken the work)",
    )
    title = "Large-job failures that removing them would have prevented"
    return Section("lemon_effect", title, pl.DataFrame(row, schema=schema), notes, model=True)
