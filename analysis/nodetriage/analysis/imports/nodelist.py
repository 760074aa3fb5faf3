"""Slurm's node lists (`rack[1-2]n[01-04],login1`) to names, by ClusterShell, guarded against lists that explode."""

import functools
import math
import re

import polars as pl
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

MOST_NODES = 200_000  # more than this from one list is a mistake in the list

# What Slurm writes where there is no list.
NO_LIST = ("", "None assigned", "None", "(null)", "Unknown")

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.\-]*(?:\[[0-9,\-]+\][A-Za-z0-9_.\-]*)*"
_LIST = re.compile(rf"{_NAME}(?:,{_NAME})*")
_BRACKETS = re.compile(r"\[([0-9,\-]+)\]")
_PLAIN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$"


@functools.lru_cache(maxsize=100_000)
def expand(text: str) -> tuple[str, ...] | None:
    """The nodes that `text` names, sorted as ClusterShell sorts; None where it is not a list of nodes."""
    if text in NO_LIST:
        return ()
    if not _LIST.fullmatch(text) or _size_bound(text) > MOST_NODES:
        return None
    try:
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return None


def expand_column(lists: pl.Series) -> tuple[pl.Series, int]:
    """A column of node lists as a column of lists of names, and how many rows cannot be expanded (they become null)."""
    column = lists.alias("list").to_frame().with_columns(pl.col("list").str.strip_chars())
    plain = pl.col("list").str.contains(_PLAIN) & ~pl.col("list").is_in(NO_LIST)
    others = column.filter(~plain)["list"].drop_nulls().unique()
    expanded = [expand(text) for text in others]
    known = pl.DataFrame(
        {"list": others, "names": [list(e) if e is not None else None for e in expanded]},
        schema={"list": pl.String, "names": pl.List(pl.String)},
    )
    rows = column.join(known, on="list", how="left", maintain_order="left")
    names = rows.select(pl.when(plain).then(pl.concat_list("list")).otherwise(pl.col("names")).alias(lists.name))
    bad = int((names.to_series().is_null() & column["list"].is_not_null()).sum())
    return names.to_series(), bad


def _size_bound(text: str) -> int:
    """An upper bound on the number of nodes in `text`, without expanding it."""
    groups = re.split(r",(?![^\[]*\])", text)
    return sum(math.prod(_range_size(b) for b in _BRACKETS.findall(group)) for group in groups)


def _range_size(ranges: str) -> int:
    total = 0
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        total += max(int(high) - int(low) + 1, 1) if dash and low.isdecimal() and high.isdecimal() else 1
    return total
