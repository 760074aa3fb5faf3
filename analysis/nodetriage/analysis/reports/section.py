"""A table of a report: its columns carry their units in their names, its notes say what the numbers mean."""

from dataclasses import dataclass

import polars as pl

from nodetriage.analysis.models.figure import Figure


@dataclass(frozen=True, slots=True)
class Section:
    """`name` is the file's in exports. `model` marks numbers that come from a formula, not from what happened."""

    name: str
    title: str
    table: pl.DataFrame
    notes: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    model: bool = False
    texts: tuple[str, ...] = ()  # paragraphs, one a finding


def of_figures(name: str, title: str, figures: list[Figure], *, model: bool = False) -> Section:
    """Figures as rows: name, value, unit, low, high (90 %), kind; their notes below."""
    rows = [(f.name, f.value, f.unit, f.low, f.high, f.kind) for f in figures]
    schema = {
        "name": pl.String,
        "value": pl.Float64,
        "unit": pl.String,
        "low": pl.Float64,
        "high": pl.Float64,
        "kind": pl.String,
    }
    notes = [f"{f.name}: {note}" for f in figures for note in f.notes]
    return Section(name, title, pl.DataFrame(rows, schema=schema, orient="row"), tuple(notes), model=model)
