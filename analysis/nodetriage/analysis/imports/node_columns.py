"""Columns of Slurm's node lists to columns of names: each list that is not one plain name is expanded once."""

import functools
import re

import polars as pl

from nodetriage.controller.slurm.node_list import NO_LIST, expand

# The usual shape, one bracket at the end: jobs of some size have a list of their own each, so these must be quick.
_ONE_RANGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.\-]*?)\[([0-9,\-]{1,20000})\]")
_MOST_NUMBERS = 20_000
_MOST_DIGITS = 9

_PLAIN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$"


def expand_column(lists: pl.Series) -> tuple[pl.Series, int]:
    """A column of node lists as a column of lists of names, and how many rows cannot be expanded (they become null)."""
    column = lists.alias("list").to_frame().with_columns(pl.col("list").str.strip_chars())
    plain = pl.col("list").str.contains(_PLAIN) & ~pl.col("list").is_in(NO_LIST)
    others = column.filter(~plain)["list"].drop_nulls().unique()
    expanded = [_one_range(text) or expand(text) for text in others]
    known = pl.DataFrame(
        {"list": others, "names": [list(e) if e is not None else None for e in expanded]},
        schema={"list": pl.String, "names": pl.List(pl.String)},
    )
    rows = column.join(known, on="list", how="left", maintain_order="left")
    names = rows.select(pl.when(plain).then(pl.concat_list("list")).otherwise(pl.col("names")).alias(lists.name))
    bad = int((names.to_series().is_null() & column["list"].is_not_null()).sum())
    return names.to_series(), bad


def _one_range(text: str) -> tuple[str, ...] | None:
    """`node[01-04,7]` as `expand` gives it, in order of the numbers; None where the text is anything less plain."""
    whole = _ONE_RANGE.fullmatch(text)
    if whole is None:
        return None
    parts = whole[2].split(",")
    widths = {len(number) for part in parts for number in part.split("-", 1)}
    padded = any(part[:1] == "0" and len(part.split("-", 1)[0]) > 1 for part in parts)
    # Mixed padding, numbers that overlap or go back, and high ones are the library's to settle.
    if 0 in widths or max(widths) > _MOST_DIGITS or (padded and len(widths) > 1):
        return None
    names = _names(whole[1], max(widths) if padded else 0)
    found: list[str] = []
    before = -1
    for part in parts:
        low, _, high = part.partition("-")
        if "-" in high or (first := int(low)) <= before or (before := int(high or low)) < first:
            return None
        if before >= len(names):
            return None
        found += names[first : before + 1]
    return tuple(found)


@functools.lru_cache(maxsize=32)
def _names(prefix: str, width: int) -> list[str]:
    """The first names with a prefix: a cluster has few prefixes, and each list of nodes is made of parts of these."""
    return [f"{prefix}{n:0{width}d}" for n in range(_MOST_NUMBERS)]
