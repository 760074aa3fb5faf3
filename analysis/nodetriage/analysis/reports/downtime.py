"""How long nodes are out of service, and how many hot spares cover that. Needs a record of drains and repairs."""

from dataclasses import replace
from typing import Final

from nodetriage.analysis.history import outages
from nodetriage.analysis.history.missing import NOT_MEASURED
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.models import spares
from nodetriage.analysis.models.figure import Figure, OutOfDomain
from nodetriage.analysis.reports.section import Section, of_figures

_TARGET = 0.99
_MEASURED: Final = "measured"


def downtime_sections(study: Study) -> list[Section]:
    """Downtime as measured and spares as modelled from it; "not measured" where no outage is recorded."""
    found = outages.of_records(study.history.outages, study.window)
    nodes, days = study.facts.nodes.len(), study.window.days
    if not study.history.outages.height:
        nothing = of_figures("downtime", "Nodes out of service", [])
        return [replace(nothing, notes=(f"{NOT_MEASURED}: no outages are recorded (--outages, --database)",))]
    if not found.height or not nodes or days <= 0:
        return []
    ended = outages.downtime(found.filter("repaired"))
    figures = [
        Figure(
            "outages", found.height, "", _MEASURED, notes=(f"{found.height - ended.outages} still open at the end",)
        ),
        Figure("mean downtime of repaired nodes", ended.mean_days, "days", _MEASURED),
        Figure("median downtime", ended.median_days, "days", _MEASURED),
        Figure("longest downtime", ended.longest_days, "days", _MEASURED),
        Figure("nodes out at once, mean", outages.mean_open(found, 0, days), "nodes", _MEASURED),
        Figure("nodes out at once, most", outages.most_open(found), "nodes", _MEASURED),
        Figure(f"availability of {nodes:,} nodes", outages.availability(found, nodes, 0, days), "", _MEASURED),
    ]
    rate = found.height / nodes / days * 1000
    try:
        needed = spares.needed(nodes, rate, ended.mean_days, _TARGET)
        name = f"hot spares for {_TARGET:.0%} of the time (model)"
        figures.append(Figure(name, needed.value, needed.unit, notes=needed.notes))
    except OutOfDomain:
        pass  # no node was repaired yet, so there is no mean
    return [of_figures("downtime", "Nodes out of service", figures)]
