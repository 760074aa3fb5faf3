"""Columns of Slurm's node lists to columns of names: each list that is not one plain name is expanded once."""

import itertools
import re

import polars as pl

from nodetriage.controller.slurm.node_list import MOST_NODES, NO_LIST, expand

# The usual shape, one bracket at the end: jobs of some size have a list of their own each, so these must be quick.
_ONE_RANGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.\-]*?)\[([0-9,\-]{1,20000})\]")
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

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
    parts = [_PART.fullmatch(part) for part in whole[2].split(",")] if whole else []
    if whole is None or None in parts:
        return None
    prefix, widths, numbers = whole[1], set(), []
    for low, high in (part.groups(default="") for part in parts if part):
        widths |= {len(low), len(high or low)}
        first, last = int(low), int(high or low)
        padded = len(low) > 1 and low[0] == "0"
        if last < first or last - first > MOST_NODES or (padded and len(high or low) != len(low)):
            return None
        numbers.append((first, last, len(low) if padded else 0))
    pads = {pad for _, _, pad in numbers}
    # Mixed padding and numbers that overlap are ClusterShell's to settle.
    if len(pads) != 1 or (pads != {0} and len(widths) != 1) or sum(b - a + 1 for a, b, _ in numbers) > MOST_NODES:
        return None
    (pad,) = pads
    found = [n for first, last, _ in numbers for n in range(first, last + 1)]
    if any(b <= a for a, b in itertools.pairwise(found)):
        return None
    return tuple(f"{prefix}{n:0{pad}d}" if pad else f"{prefix}{n}" for n in found)
