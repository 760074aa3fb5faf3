"""Reports as text for a terminal, as JSON, and as CSV."""

import json
import math
import textwrap
from datetime import date, datetime
from typing import Any, TextIO

import polars as pl
from polars import selectors
from rich import box
from rich.console import Console
from rich.table import Table

from nodetriage.analysis.history.history import History
from nodetriage.analysis.reports.report import Report
from nodetriage.analysis.reports.section import Section

# Characters. Without a terminal a table takes what it needs, so that every row stays one line.
_PIPE_WIDTH = 2000
_TEXT_WIDTH = 120


def as_text(reports: list[Report], out: TextIO, most_rows: int) -> None:
    """Tables with their notes; long ones are cut after `most_rows` and say how much is left out."""
    console = Console(file=out, width=None if out.isatty() else _PIPE_WIDTH, highlight=False, markup=False)
    for report in reports:
        for section in report.sections:
            _section(console, section, most_rows)


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
        out.write(f"# {section.name}: {_title(section)}\n{_flat(section.table).write_csv()}\n")


def _section(console: Console, section: Section, most_rows: int) -> None:
    console.print(f"\n{_title(section)}", style="bold")
    for alarm in section.alarms:
        console.print(f"  ALARM {alarm}", style="red")
    if section.table.height:
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name, dtype in section.table.schema.items():
            shown.add_column(name, justify="right" if dtype.is_numeric() else "left", overflow="fold")
        for row in section.table.head(most_rows).iter_rows():
            shown.add_row(*(_cell(v) for v in row))
        console.print(shown)
    elif section.name != "input":
        console.print("  nothing in this period")
    if section.table.height > most_rows:
        console.print(f"  {section.table.height - most_rows:,} rows more (--rows, --csv or --json show them)")
    width = min(_TEXT_WIDTH, console.width)
    for note in section.notes:
        console.print(textwrap.fill(note, width, initial_indent="  ", subsequent_indent="  "), style="dim")
    for text in section.texts:
        console.print("\n" + textwrap.fill(text, width))


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


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    lists = [c for c, t in table.schema.items() if isinstance(t, pl.List)]
    return _rounded(table.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(",")) if lists else table)


def _rounded(table: pl.DataFrame) -> pl.DataFrame:
    # The last digits of a sum depend on the order in which threads add; the same history gives the same text.
    return table.with_columns(selectors.float().round_sig_figs(12))


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_value(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} in a report")
