"""Where failures fall: one section for each way in which the site groups its nodes (racks, switches, ...)."""

import polars as pl

from nodetriage.analysis.history import placement
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.imports import topology
from nodetriage.analysis.reports.section import Section

_SIGNIFICANT = 0.01


def placement_sections(study: Study) -> list[Section]:
    """Rates by group, worst first, with an alarm for each that stands out; nothing where no topology is known."""
    if study.topology is None:
        return []
    study.progress("placing failures")
    failures = study.facts.failures.filter("first").select("node")
    spent = placement.node_days(study.history.jobs, study.window)
    return [_section(study.topology, level, failures, spent) for level in topology.levels(study.topology)]


def _section(plan: pl.DataFrame, level: str, failures: pl.DataFrame, spent: pl.DataFrame) -> Section:
    found = placement.by_group(failures, spent, plan, level)
    alarms = tuple(
        f"{level} {group}: {count} failures where {expected:.3g} expected (q = {q:.1g})"
        for group, count, expected, q in found.filter(pl.col("q_value") < _SIGNIFICANT)
        .select("group", "failures", "expected", "q_value")
        .iter_rows()
    )
    notes = (
        "failures attributed to a node, once an occasion; of a multi-node job only where the evidence names one node",
        "per 1000 node-days of jobs, 90 % intervals; p_value: chance of so many were all alike; q_value: corrected for"
        f" {found.height} groups",
    )
    return Section(f"rates_by_{level}", f"Failure rates by {level}", found.rename({"group": level}), notes, alarms)
