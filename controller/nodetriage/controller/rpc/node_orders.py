"""An order for a set of nodes: who is meant, each node's outcome, and the answer as text."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from nodetriage.controller.slurm import node_list

MOST_NODES, MOST_SET = 20_000, 100_000  # nodes of one order, and characters that name them
AT_ONCE = 100  # nodes whose order is under way
SHOWN = 20  # refusals that an answer spells out


class Done(NamedTuple):
    """What came of an order for one node; `node` is "" for the fleet."""

    node: str
    done: bool
    message: str


async def each_of(nodes: str, who: str, order: Callable[[str, str], Awaitable[Done]]) -> list[Done]:
    """The order for each node of the set, a few at a time."""
    names = node_list.expand(nodes) if len(nodes) <= MOST_SET else None
    if not names:
        text = f"{nodes[:80]!r} names no nodes: expected a node set such as n[1-8],login1"
        return [Done("", False, text)]
    if len(names) > MOST_NODES:
        return [Done("", False, f"{nodes[:80]!r} names {len(names)} nodes: at most {MOST_NODES} at once")]
    found: list[Done] = []
    for i in range(0, len(names), AT_ONCE):
        found += await asyncio.gather(*(order(who, name) for name in names[i : i + AT_ONCE]))
    return found


def message_of(each: list[Done]) -> str:
    """One line for a single node. For several: how many were done, and what was refused, a line for each node."""
    if len(each) == 1:
        return each[0].message
    refused = [one for one in each if not one.done]
    lines = [f"{len(each) - len(refused)} of {len(each)} nodes: recorded; what comes of it is in the history"]
    lines += [one.message for one in refused[:SHOWN]]
    if len(refused) > SHOWN:
        lines.append(f"and {len(refused) - SHOWN} nodes more are refused")
    return "\n".join(lines)


def moment_of(unix_us: int) -> datetime | None:
    """None for 0, and the end of time for what no clock can show: an order with it is refused."""
    if unix_us == 0:
        return None
    try:
        return datetime.fromtimestamp(unix_us / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)
