"""What our rules make of every line in data/kernel_lines.tsv: `python tests/checks/parts/kernel_coverage.py`.

Each row's block (records separated by `\\r`), or its example, is judged by all checks on a machine that says nothing of
its devices. `suggested` is what whoever collected the line from the kernel's source would make of it.
"""

import collections
import csv
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_log_of import findings

from nodetriage.checks.model import Finding

DATA = Path(__file__).parents[1] / "data"
RANK = {"none": 0, "info": 1, "warning": 2, "major": 3, "critical": 4}
ADDRESS = re.compile(r"\b(?:[0-9a-f]{4}:)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of one driver. `records` are what the kernel logs of it."""

    id: str
    subsystem: str
    suggested: int
    records: tuple[str, ...]
    note: str


@cache
def rows() -> tuple[Row, ...]:
    with (DATA / "kernel_lines.tsv").open(encoding="utf-8", newline="") as table:
        return tuple(map(_row, csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)))


def _row(cells: dict[str, str | None]) -> Row:
    block = cells.get("block") or ""
    texts = block.split("\\r") if block else [cells["example"] or ""]
    records = tuple(re.sub(r"\\([nt])", lambda m: {"n": "\n", "t": "\t"}[m[1]], text) for text in texts)
    return Row(
        cells["id"] or "", cells["subsystem"] or "", RANK[cells["suggested"] or "none"], records, cells["note"] or ""
    )


@cache
def left_out() -> dict[str, str]:
    """The reason, by the row's id, why a line that deserves a warning or more is not judged so."""
    with (DATA / "kernel_lines_left_out.tsv").open(encoding="utf-8", newline="") as table:
        return {row["id"]: row["reason"] for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)}


def judged(folder: Path, row: Row) -> list[tuple[str, Finding]]:
    return findings(folder, row.records)


def names_its_device(row: Row, found: list[tuple[str, Finding]]) -> bool:
    """Whether a finding's part is a PCI address that the lines name, where they name any: or a requester's number."""
    text = "\n".join(row.records)
    numbers = (int(number, 16) for number in re.findall(r"\bS?ID ?([0-9a-f]{4})$", text, re.MULTILINE))
    named = {*ADDRESS.findall(text), *(f"{n >> 8:02x}:{n >> 3 & 31:02x}.{n & 7}" for n in numbers)}
    parts = {address for _, finding in found for address in ADDRESS.findall(finding.component)}
    return not named or not parts or bool(named & parts)


def table() -> Iterator[str]:
    """A line a subsystem: rows, those that deserve a warning or more, how many of them have one, are left out, missed;
    and how many of the others are judged major or critical."""
    count: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows():
            found = judged(Path(folder), row)
            got, of = max((int(f.severity) for _, f in found), default=0), count[row.subsystem]
            of["rows"] += 1
            of["wrong"] += row.suggested < 2 and got > 2
            if row.suggested >= 2:
                kind = "matched" if got >= 2 else "left out" if row.id in left_out() else "missed"
                of.update(["expected", kind])
                missed += [row.id] if kind == "missed" else []
    columns = ("rows", "expected", "matched", "left out", "missed", "wrong")
    yield f"{'subsystem':<16}" + "".join(f"{column:>10}" for column in columns)
    total = sum(count.values(), collections.Counter())
    for name, of in (*count.items(), ("all", total)):
        yield f"{name:<16}" + "".join(f"{of[column]:>10}" for column in columns)
    yield "missed: " + (", ".join(missed) or "none")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
