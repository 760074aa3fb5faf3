"""What an NVLink 5 error (Xid 144-150) says: nvlink5.toml, or the word Fatal or Nonfatal where the table is silent."""

import functools
import re
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.model.settings import decode, load_toml

# "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 ...)"; columns are padded, and link is -1 for none.
_LINE = re.compile(
    r"(?P<unit>\w+)\s+(?P<word>Non-?[Ff]atal|Fatal|Link Fatal)\s+XC\d+\s+i\d+\s+Link\s+(?P<link>-?\d+)\s+"
    r"\((?P<intr>0x[0-9a-fA-F]{1,8})\s+(?P<status>0x[0-9a-fA-F]{1,8})\b"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of nvlink5.toml (see its head). The mask pairs are (mask, value) over the first word of the line."""

    xid: int
    units: tuple[str, ...]
    v1: tuple[int, ...]
    v2: tuple[int, ...]
    error_status: tuple[int, ...]
    act: Literal["reset", "follow_154", "none"]
    look: str
    origin: str
    escalated_v1: tuple[int, ...] = ()
    escalated_v2: tuple[int, ...] = ()

    def severity(self, intr_info: int) -> Severity:
        """What the row is worth, given the first word of the line."""
        if self.act == "reset" or _matches(self.escalated_v1, intr_info) or _matches(self.escalated_v2, intr_info):
            return Severity.CRITICAL
        return Severity.INFO if self.act == self.look == "none" else Severity.WARNING


def judge_line(code: int, rest: str, otherwise: Severity) -> tuple[Severity, dict[str, Scalar]]:
    """Severity and evidence of an Xid 144-150. `otherwise` is for a line that has neither decode nor word.

    The line does not say which driver printed it, so both mask sets are tried. Rows that name the unit of the line
    win; where rows still disagree, or none is there, the line's own word decides.
    """
    found = _LINE.search(rest)
    if not found:
        return otherwise, {}
    intr, status = int(found["intr"], 16), int(found["status"], 16)
    evidence: dict[str, Scalar] = {"unit": found["unit"], "link": int(found["link"]), "word": found["word"]}
    rows = [r for r in _rows() if r.xid == code and _fits(r, intr, status)]
    rows = [r for r in rows if found["unit"] in r.units] or rows
    by_word = Severity.WARNING if found["word"].lower().startswith("non") else Severity.CRITICAL
    said = {r.severity(intr) for r in rows}
    if len(said) == 1:
        return said.pop(), {**evidence, "origin": rows[0].origin, "look_at": rows[0].look}
    return by_word, evidence


def _fits(row: Row, intr: int, status: int) -> bool:
    if row.error_status and status not in row.error_status:
        return False
    return any(_matches(p, intr) for p in (row.v1, row.v2, row.escalated_v1, row.escalated_v2))


def _matches(pair: tuple[int, ...], word: int) -> bool:
    return len(pair) == 2 and word & pair[0] == pair[1]


@functools.cache
def _rows() -> tuple[Row, ...]:
    with resources.as_file(resources.files("nodetriage.checks.rules") / "nvlink5.toml") as path:
        return tuple(decode(Row, row, path.name, "row") for row in load_toml(path)["row"])
