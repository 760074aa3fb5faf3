"""Slurm's node lists (`rack[1-2]n[01-04],login1`) to names, by ClusterShell, guarded against lists that explode."""

import functools
import math
import re

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

MOST_NODES = 200_000  # more than this from one list is a mistake in the list

# What Slurm writes where there is no list.
NO_LIST = ("", "None assigned", "None", "(null)", "Unknown")

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.\-]*(?:\[[0-9,\-]+\][A-Za-z0-9_.\-]*)*"
_LIST = re.compile(rf"{_NAME}(?:,{_NAME})*")
_BRACKETS = re.compile(r"\[([0-9,\-]+)\]")


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
