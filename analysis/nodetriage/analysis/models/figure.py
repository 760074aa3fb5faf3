"""The frozen value in which every result leaves the analysis: a number with its unit, and whether it is a model's."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["model", "measured"]


# Beyond these, in any of the units used here, a number is a mistake; within them nothing overflows or vanishes.
_LEAST, _MOST = 1e-12, 1e12


class OutOfDomain(ValueError):
    """A model does not hold for these values; the text names the value and what is expected."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `low` and `high` bound it at 90 % where an interval is known; `notes` are for the reader."""

    name: str
    value: float
    unit: str
    kind: Kind = "model"
    low: float | None = None
    high: float | None = None
    notes: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """As JSON takes it: no infinities, no NaN (null stands for "no bound")."""
        row = dataclasses.asdict(self)
        for key in ("value", "low", "high"):
            if row[key] is not None and not math.isfinite(row[key]):
                row[key] = None
        return row

    def line(self) -> str:
        """One line for a person."""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" [{self.low:.4g} to {self.high:.4g} at 90 %]"
        text = f"{self.name}: {self.value:.6g} {self.unit}{interval} ({self.kind})"
        return "\n".join([text, *(f"  note: {n}" for n in self.notes)])


def positive(**values: float) -> None:
    """Raises OutOfDomain where a value is not a number above zero of a size that any cluster has."""
    for name, value in values.items():
        if not _LEAST <= value <= _MOST:
            raise OutOfDomain(f"{name}: expected a number above 0 ({_LEAST:g} to {_MOST:g}), got {value:g}")


def not_negative(**values: float) -> None:
    """Raises OutOfDomain where a value is not a number of zero or more of a size that any cluster has."""
    for name, value in values.items():
        if not 0 <= value <= _MOST:
            raise OutOfDomain(f"{name}: expected a number from 0 to {_MOST:g}, got {value:g}")


def share(**values: float) -> None:
    """Raises OutOfDomain where a value does not lie between 0 and 1, both excluded."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise OutOfDomain(f"{name}: expected a number between 0 and 1, got {value:g}")
