"""What a command prints for people: lines and tables.

On a terminal a table has colours, and a long value folds within its column. Elsewhere (a pipe, a file) a row is one
line, however long, so that grep, sort and awk work on it. No value is cut, and none reaches the terminal as anything
but text (see printable).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from nodetriage.service.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_SEVERITY_COLUMNS = ("severity", "worst")
_COLOURS = {"critical": "bold red", "major": "red", "warning": "yellow"}
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """The columns' names, and rows of as many values. `right` names the columns of numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Line:
    """One line; on a terminal it wraps between words. `style` is rich's."""

    text: str
    style: str = ""
    indent: int = 0


def write(out: TextIO, *parts: Table | Line | str) -> None:
    """Prints the parts one below the other; an empty text is an empty line."""
    lines = [Line(part) if isinstance(part, str) else part for part in parts]
    if out.isatty():
        _to_terminal(out, lines)
        return
    for part in lines:
        out.writelines(f"{line}\n" for line in (_plain(part) if isinstance(part, Table) else [_indented(part)]))


def _indented(line: Line) -> str:
    return " " * line.indent + printable(line.text)


def _plain(table: Table) -> list[str]:
    rows = [list(table.columns), *([printable(value) for value in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [column in table.right for column in table.columns]
    return [
        _GAP.join(v.rjust(w) if r else v.ljust(w) for v, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in rows
    ]


def _to_terminal(out: TextIO, parts: Sequence[Table | Line]) -> None:
    from rich.console import Console, Group  # rich takes longer to load than a pipe's reader wants to wait
    from rich.padding import Padding
    from rich.text import Text

    shown: list[RenderableType] = [
        _rich(part)
        if isinstance(part, Table)
        else Padding(Text(printable(part.text), part.style), (0, 0, 0, part.indent))
        for part in parts
    ]
    Console(file=out, highlight=False).print(Group(*shown))


def _rich(table: Table) -> "RenderableType":
    from rich import table as rich_table
    from rich.text import Text

    shown = rich_table.Table(box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        shown.add_column(column, overflow="fold", justify="right" if column in table.right else "left")
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        shown.add_row(*(Text(printable(v), _COLOURS.get(v, "") if c in _SEVERITY_COLUMNS else "") for c, v in cells))
    return shown
