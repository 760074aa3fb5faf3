"""The lines of `sacct -P` back to records: a field may hold a line break, a delimiter or bytes that are not UTF-8."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import polars as pl

from nodetriage.analysis.tables import Problems, TableError

BLOCK_BYTES = 16 << 20
MOST_BREAKS = 50  # lines that one record may be spread over; more is not a record

# Text that users write; only there may a delimiter be part of the text.
FREE_TEXT = ("jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "reason", "constraints")

_HEADER = re.compile(r"[A-Za-z]+(?:(?P<delimiter>[^A-Za-z0-9_]+)[A-Za-z]+)*")
_STATE = re.compile(r"[A-Z_]+( by \d+)?\+?")


@dataclass(frozen=True, slots=True)
class Header:
    """The first line: what divides fields, and the columns' names in lower case, in order."""

    delimiter: str
    names: tuple[str, ...]

    @property
    def delimiters(self) -> int:
        """How many delimiters a whole record has."""
        return len(self.names) - 1


@dataclass(slots=True)
class _Mender:
    """Joins records that line breaks split. One pass over the lines that are not whole records."""

    header: Header
    problems: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    parts: list[str] = field(default_factory=list)
    found: int = 0  # delimiters in parts

    def add(self, line: str) -> str | None:
        """Takes one line; a whole record where that line ends one."""
        count = line.count(self.header.delimiter)
        if count > self.header.delimiters:
            self.give_up()
            return self._without_stray_delimiters(line)
        if self.found + count > self.header.delimiters or len(self.parts) >= MOST_BREAKS:
            self.give_up()
        if not self.parts and not line.strip():
            return None
        self.parts.append(line)
        self.found += count
        if self.found < self.header.delimiters:
            return None
        record, self.parts, self.found = "\n".join(self.parts), [], 0
        self.mended["a line break in a field"] += 1
        return record

    def give_up(self) -> None:
        """The collected lines are no record."""
        if any(p.strip() for p in self.parts):
            self.problems["too few fields"] += 1
        self.parts, self.found = [], 0

    def _without_stray_delimiters(self, line: str) -> str | None:
        fields = line.split(self.header.delimiter)
        extra = len(fields) - len(self.header.names)
        readings = []
        for i in (at for at, name in enumerate(self.header.names) if name in FREE_TEXT):
            whole = " ".join(fields[i : i + extra + 1])
            reading = [*fields[:i], whole, *fields[i + extra + 1 :]]
            if self._plausible(reading):
                readings.append(reading)
        # With two free fields side by side either may have had the delimiter; the others stay the same.
        if len({tuple(self._strict(r)) for r in readings}) != 1:
            self.problems["too many fields"] += 1
            return None
        self.mended["a delimiter in a field"] += 1
        return self.header.delimiter.join(readings[-1])

    def _strict(self, fields: list[str]) -> list[str]:
        return [f for name, f in zip(self.header.names, fields, strict=True) if name not in FREE_TEXT]

    def _plausible(self, fields: list[str]) -> bool:
        row = dict(zip(self.header.names, fields, strict=True))
        times = (row[n] for n in ("submit", "eligible", "start", "end") if n in row)
        return bool(_STATE.fullmatch(row.get("state", ""))) and all(
            t[:4].isdecimal() or t in ("Unknown", "None", "") for t in times
        )


def read_header(line: str) -> Header:
    """Raises TableError where `line` is not the header of `sacct -P` with JobID and State."""
    line = line.lstrip("\ufeff").strip()
    if re.match(r"jobid +\S|\S+ .*\bjobid\b", line, re.IGNORECASE) and "|" not in line:
        raise TableError("an aligned table, as sacct prints without -P, whose values are cut short; run sacct with -P")
    match = _HEADER.match(line)
    delimiter = match["delimiter"] if match and match["delimiter"] else "|"
    names = tuple(n.lower() for n in line.split(delimiter))
    if "jobid" not in names or "state" not in names:
        raise TableError(f"not the output of sacct -P: expected a first line with JobID and State, got {line[:80]!r}")
    return Header(delimiter, names)


def records(source: BinaryIO, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[Header, pl.Series, Problems]]:
    """Whole records, each with exactly the header's delimiters, a block at a time. Raises TableError (no header)."""
    first = source.readline()
    while first and not first.strip():
        first = source.readline()
    if not first:
        return
    header = read_header(first.decode("utf-8", "replace"))
    mender = _Mender(header)
    rest = b""
    while True:
        block = source.read(block_bytes)
        rest += block
        cut = rest.rfind(b"\n") + 1 if block else len(rest)
        lines = _decoded(rest[:cut], mender.mended)
        rest = rest[cut:]
        whole = _whole(lines, header, mender)
        if not block:
            mender.give_up()
        yield header, whole, Problems(dict(mender.mended), dict(mender.problems))
        mender.mended.clear()
        mender.problems.clear()
        if not block:
            return


def _decoded(block: bytes, mended: Counter[str]) -> list[str]:
    if not block:
        return []
    block = block.removesuffix(b"\n")
    try:
        return block.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return [_latin(line, mended) for line in block.split(b"\n")]


def _latin(line: bytes, mended: Counter[str]) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        mended["not UTF-8, read as Latin-1"] += 1
        return line.decode("latin-1")


def _whole(lines: list[str], header: Header, mender: _Mender) -> pl.Series:
    """The records in `lines`. The few that are not one line each are joined, the rest stay columns."""
    block = pl.DataFrame({"line": pl.Series(lines, dtype=pl.String)}).with_columns(
        pl.col("line").str.strip_suffix("\r").str.replace_all("\x00", "", literal=True)
    )
    counts = pl.col("line").str.count_matches(header.delimiter, literal=True)
    again = pl.col("line").str.to_lowercase() == header.delimiter.join(header.names)
    block = block.with_row_index("at").with_columns((counts == header.delimiters).alias("good"), again.alias("again"))
    if headers := int(block["again"].sum()):
        mender.mended["the header again"] += headers
    good = block.filter("good", ~pl.col("again")).select("at", "line")
    mended = []
    before = -1
    for at, line in block.filter(~pl.col("good")).select("at", "line").iter_rows():
        # A whole record in between ends the split one.
        if at != before + 1 and mender.parts:
            mender.give_up()
        record = mender.add(line)
        before = at
        if record is not None:
            mended.append((at, record))
    if before != block.height - 1:
        mender.give_up()
    if not mended:
        return good["line"]
    extra = pl.DataFrame(mended, schema={"at": good.schema["at"], "line": pl.String}, orient="row")
    return pl.concat([good, extra]).sort("at")["line"]
