"""Reports as text for a terminal, as JSON, and as CSV."""

import json
import math
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, TextIO

import polars as pl
from polars import selectors

from nodetriage.analysis.history.history import History
from nodetriage.analysis.reports.report import Report
from nodetriage.analysis.reports.section import Section
from nodetriage.service import table
from nodetriage.service.printable import printable
from nodetriage.service.table import Line, Table


def as_text(reports: list[Report], out: TextIO, most_rows: int) -> None:
    """Tables with their notes; long ones are cut after `most_rows` and say how much is left out."""
    sections = [section for report in reports for section in report.sections]
    table.write(out, *(part for section in sections for part in _section(section, most_rows)))


def as_json(reports: list[Report], history: History, out: TextIO) -> None:
    """One object: period, sources, and by report its sections with all their rows. No NaN, no infinity: null."""
    document = {
        "since": history.since.isoformat(),
        "until": history.until.isoformat(),
        "sources": list(history.problems),
        "reports": [
            {"name": r.name, "alarms": list(r.alarms), "sections": [_plain(s) for s in r.sections]} for r in reports
        ],
    }
    json.dump(document, out, indent=1, default=_json_value, allow_nan=False)
    out.write("\n")


def as_csv(reports: list[Report], out: TextIO) -> None:
    """One CSV table after the other, each below a line `# name: title`, with an empty line between."""
    for section in (s for r in reports for s in r.sections):
        out.write(f"# {section.name}: {printable(_title(section))}\n{_flat(section.table).write_csv()}\n")


def _section(section: Section, most_rows: int) -> Iterator[Line | Table | str]:
    yield ""
    yield Line(_title(section), "bold")
    yield from (Line(f"ALARM {alarm}", "red", indent=2) for alarm in section.alarms)
    if section.table.height:
        numbers = frozenset(name for name, dtype in section.table.schema.items() if dtype.is_numeric())
        rows = [tuple(map(_cell, row)) for row in section.table.head(most_rows).iter_rows()]
        yield Table(section.table.columns, rows, numbers)
    elif section.name != "input":
        yield Line("nothing in this period", indent=2)
    if section.table.height > most_rows:
        left_out = section.table.height - most_rows
        yield Line(f"{left_out:,} rows more (--rows, --csv or --json show them)", indent=2)
    yield from (Line(note, "dim", indent=2) for note in section.notes)
    for text in section.texts:
        yield ""
        yield text


def _title(section: Section) -> str:
    return f"{section.title} (model)" if section.model and "(model)" not in section.title else section.title


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)


def _number(value: float) -> str:
    """Four digits that count, without exponents where people count in units."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "no failure" if value > 0 else "-"
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _plain(section: Section) -> dict[str, Any]:
    rows = [{k: _finite(v) for k, v in row.items()} for row in _rounded(section.table).iter_rows(named=True)]
    return {
        "name": section.name,
        "title": section.title,
        "model": section.model,
        "notes": list(section.notes),
        "texts": list(section.texts),
        "rows": rows,
    }


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    lists = [c for c, t in frame.schema.items() if isinstance(t, pl.List)]
    flat = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(",")) if lists else frame
    texts = selectors.string()
    return _rounded(flat.with_columns(texts.map_elements(printable, return_dtype=pl.String)))


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    # The last digits of a sum depend on the order in which threads add; the same history gives the same text.
    return frame.with_columns(selectors.float().round_sig_figs(12))


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_value(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} in a report")
