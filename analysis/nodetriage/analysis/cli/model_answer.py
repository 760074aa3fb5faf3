"""What a verb of `nodetriagectl model` answers, as text and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nodetriage.analysis.models.figure import Figure
from nodetriage.service.table import Line, Table


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb found: figures, rows of a table, and what the models cannot answer and why."""

    figures: tuple[Figure, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    refused: tuple[str, ...] = ()

    def as_json(self) -> str:
        """One object without empty fields."""
        found = {"figures": [f.row() for f in self.figures], "rows": self.rows, "refused": self.refused}
        shown = {"kind": "model", **{k: v for k, v in found.items() if v}}
        return json.dumps(shown, indent=2, allow_nan=False) + "\n"

    def parts(self) -> Iterator[Line | Table]:
        """For a person: figures, the table, then refusals."""
        yield from (Line(line) for f in self.figures for line in f.line().splitlines())
        if self.rows:
            yield Line("model:", "bold")
            numbers = frozenset(k for k, v in self.rows[0].items() if not isinstance(v, str))
            yield Table(list(self.rows[0]), [tuple(map(_cell, row.values())) for row in self.rows], numbers)
        yield from (Line(f"not answered: {r}") for r in self.refused)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
