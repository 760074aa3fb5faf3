"""How long what a node says may be, and which names are in the catalogue. Pure, but for the names that it remembers.

An event that is too long is not refused: its agent would send it for ever. It is set aside and acked (store/poison.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodetriage.v1 import health_pb2

UNKNOWN = "unknown"
MOST_NAME = 64  # characters of a check, a fault, a profile or a key of the evidence
MOST_COMPONENT = 256
MOST_OPEN = 256  # findings in a heartbeat's open set
MOST_EVIDENCE = 64  # values of one event
MOST_TEXT = 4096  # of one value
MOST_EVENT_BYTES = 16 * 1024
MOST_CHECKS, MOST_PORTS = 512, 512  # of one node's heartbeats
MOST_NEW_NAMES_PER_NODE = 16
MOST_NEW_NAMES = 256  # of the whole fleet

_NAME = re.compile(rf"[!-~]{{0,{MOST_NAME}}}")  # visible ASCII without a space


class Sorted(NamedTuple):
    """A batch: what may be stored, and what is set aside, each with the reason."""

    kept: list[health_pb2.Event]
    aside: list[tuple[health_pb2.Event, str]]


class KnownNames:
    """The catalogue's names, and the first few others: an agent that is newer than its controller has some.

    Further ones become "unknown", so that no node fills tables, labels or memory with names of its own.
    """

    def __init__(self, catalogue: Iterable[str] = ()) -> None:
        self._known = {"", UNKNOWN, *catalogue}
        self._new_of: Counter[str] = Counter()  # node -> how many names it brought

    def of(self, node: str, name: str) -> str:
        """The name as it is kept."""
        if name in self._known:
            return name
        new = self._new_of.total()
        if not _NAME.fullmatch(name) or new >= MOST_NEW_NAMES or self._new_of[node] >= MOST_NEW_NAMES_PER_NODE:
            return UNKNOWN
        self._known.add(name)
        self._new_of[node] += 1
        return name


def sort(node: str, events: Sequence[health_pb2.Event], names: KnownNames) -> Sorted:
    """Changes an event whose check or fault is not kept by its name, which is then `reported_*` of its evidence."""
    found = Sorted([], [])
    for event in events:
        if why := event_over(event):
            found.aside.append((event, why))
            continue
        for field in ("check", "fault"):
            name = getattr(event, field)
            if (kept := names.of(node, name)) != name:
                setattr(event, field, kept)
                event.evidence[f"reported_{field}"].text = name
        found.kept.append(event)
    return found


def event_over(event: health_pb2.Event) -> str:
    """What of the event is over its bound; "" if nothing."""
    if (size := event.ByteSize()) > MOST_EVENT_BYTES:
        return f"an event of {size} bytes; at most {MOST_EVENT_BYTES} are taken"
    for field, most in (("check", MOST_NAME), ("fault", MOST_NAME), ("component", MOST_COMPONENT)):
        if len(text := getattr(event, field)) > most:
            return f"event.{field}: {len(text)} characters; at most {most} are taken"
    if len(event.evidence) > MOST_EVIDENCE:
        return f"event.evidence: {len(event.evidence)} values; at most {MOST_EVIDENCE} are taken"
    for key, value in event.evidence.items():
        if len(key) > MOST_NAME or len(value.text) > MOST_TEXT:
            return f"event.evidence: a key of {len(key)} or a text of {len(value.text)} characters; at most {MOST_TEXT}"
    return ""


def heartbeat_over(beat: health_pb2.Heartbeat) -> str:
    """What of the heartbeat is over its bound; "" if nothing."""
    if len(beat.checks) > MOST_CHECKS or len(beat.ports) > MOST_PORTS:
        return f"heartbeat: {len(beat.checks)} checks, {len(beat.ports)} ports; at most {MOST_CHECKS} and {MOST_PORTS}"
    if len(beat.boot_id) > MOST_NAME:
        return f"heartbeat.boot_id: {len(beat.boot_id)} characters; at most {MOST_NAME} are taken"
    longest = max((len(one.check) for one in beat.checks), default=0)
    longest_port = max((len(one.port) for one in beat.ports), default=0)
    if longest > MOST_NAME or longest_port > MOST_NAME:
        return f"heartbeat: a name of {max(longest, longest_port)} characters; at most {MOST_NAME} are taken"
    return ""


def bound_open_set(node: str, open_set: health_pb2.OpenSet, names: KnownNames) -> None:
    """Leaves what is over the bounds out of the set, and counts it as left out; names become those that are kept."""
    if not open_set.findings:
        return
    kept, aside = sort(node, open_set.findings[:MOST_OPEN], names)
    left_out = len(open_set.findings) - len(kept)
    if aside or left_out:
        del open_set.findings[:]
        open_set.findings.extend(kept)
        open_set.left_out += left_out


def result_over(result: health_pb2.CommandResult) -> str:
    """What of the answer to a command is over its bound; "" if nothing."""
    if len(result.id) > MOST_NAME or len(result.message) > MOST_TEXT:
        return f"result: {len(result.id)} characters of id, {len(result.message)} of message; at most {MOST_TEXT}"
    return ""
