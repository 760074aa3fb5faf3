"""What a verb of `nodetriagectl model` answers, as text and as JSON."""

import json
from dataclasses import dataclass
from typing import Any

from nodetriage.analysis.models.figure import Figure


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb found: figures, rows of a table, and what could not be answered and why."""

    figures: tuple[Figure, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    refused: tuple[str, ...] = ()

    def as_json(self) -> str:
        """One object; what is empty is left out."""
        found = {"figures": [f.row() for f in self.figures], "rows": self.rows, "refused": self.refused}
        shown = {"kind": "model", **{k: v for k, v in found.items() if v}}
        return json.dumps(shown, indent=2, allow_nan=False) + "\n"

    def as_text(self) -> str:
        """For a person: figures, the table, then what was refused."""
        lines = [f.line() for f in self.figures]
        if self.rows:
            lines += ["model:", "  ".join(self.rows[0])]
            lines += ["  ".join(_cell(v).rjust(len(k)) for k, v in row.items()) for row in self.rows]
        return "\n".join([*lines, *(f"not answered: {r}" for r in self.refused)]) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
