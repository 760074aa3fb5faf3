"""Which entries of a BMC's event log are new, and which events they begin and end.

Order rests on the log's own: a BMC appends. Its clock may be unset, local, or set back; a moment that cannot be
compared with the BMC's clock makes no entry new.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.readers.sel import LogEntry, Stamp
from nodetriage.checks.rules.event_log import sel_rules
from nodetriage.checks.rules.event_log.sel_rules import Worth

_AHEAD_S = 60.0  # how far an entry may be ahead of the clock that was read after it
_CLEARED_S = 3600.0  # how far before the last run an entry of a cleared log may be
_BOOT_S = 600.0  # how long a board takes from its first to its last entry of a start
_OPEN_MAX = 256


@dataclass(frozen=True, slots=True)
class Open:
    """An event that has begun and not ended."""

    component: str
    fault: str
    word: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Events of one component that are the same fault; the worst of them gives the severity."""

    component: str
    fault: str
    severity: Severity
    evidence: dict[str, Scalar] = field(default_factory=dict)
    at_s: float = -1.0  # by the BMC's clock; -1 where the entry has no date


@dataclass(frozen=True, slots=True)
class Followed:
    """What entries begin, what of the earlier ones they end (component, fault), and what is open after them."""

    begun: tuple[Begun, ...]
    over: tuple[tuple[str, str], ...]
    open: tuple[Open, ...]


def younger(entries: Sequence[LogEntry], clock: Stamp, age_s: float) -> tuple[LogEntry, ...]:
    """The entries of at most this age. One without a date is as old as the one before it."""
    found = []
    is_young = False
    for entry in entries:
        if not entry.panic:
            is_young = _comparable(entry, clock) and clock.at_s - age_s <= entry.at_s <= clock.at_s + _AHEAD_S
        if is_young:
            found.append(entry)
    return tuple(found)


def after(known: Sequence[LogEntry], entries: Sequence[LogEntry], last_look: Stamp) -> tuple[LogEntry, ...]:
    """The entries that came after those that earlier runs knew."""
    if not known:
        return tuple(entries)
    old = set(known)
    last = max((n for n, entry in enumerate(entries) if entry in old), default=-1)
    if last >= 0:
        return tuple(entries[last + 1 :])
    # None is known: the log was cleared, entries were deleted, or more came than one run reads.
    newest = max(entry.record for entry in known)
    return tuple(
        entry
        for entry in entries
        if entry.record > newest or (_comparable(entry, last_look) and entry.at_s >= last_look.at_s - _CLEARED_S)
    )


def follow(before: Iterable[Open], entries: Sequence[LogEntry], first: bool = False) -> Followed:
    """`first`: the machine may just have started, and entries without detail may be those that a board writes then."""
    earlier = tuple(before)
    was_open, is_open = dict.fromkeys(earlier), dict.fromkeys(earlier)
    begun: dict[tuple[str, str], Begun] = {}
    for entry in entries:
        worth = _tempered(sel_rules.assess(entry), entry, entries, first)
        for one in [o for o in is_open if o.component == worth.component and _ends(o, worth)]:
            del is_open[one]
            if not any((o.component, o.fault) == (one.component, one.fault) for o in is_open):
                begun.pop((one.component, one.fault), None)
        if worth.fault:
            if worth.fault != sel_rules.UNKNOWN:
                is_open.setdefault(Open(worth.component, worth.fault, worth.word))
            key = (worth.component, worth.fault)
            begun[key] = _folded(begun.get(key), worth, entry)
    still = {(o.component, o.fault) for o in is_open}
    over = tuple(dict.fromkeys((o.component, o.fault) for o in was_open if (o.component, o.fault) not in still))
    return Followed(tuple(begun.values()), over, tuple(is_open)[-_OPEN_MAX:])


def _ends(one: Open, worth: Worth) -> bool:
    return sel_rules.over(worth.ends, one.word) and not sel_rules.lasting(one.fault)


def _folded(earlier: Begun | None, worth: Worth, entry: LogEntry) -> Begun:
    """A burst is one finding: the evidence is of the worst entry, the count of all."""
    count = int(earlier.evidence["count"]) + 1 if earlier else 1
    if earlier and (earlier.severity >= worth.severity):
        return replace(earlier, evidence={**earlier.evidence, "count": count, "last_record": entry.record})
    evidence: dict[str, Scalar] = {"record": entry.record, "sensor": entry.sensor, "event": entry.event}
    if entry.detail:
        evidence["detail"] = entry.detail
    if not entry.asserted:
        evidence["deasserted"] = True
    return Begun(worth.component, worth.fault, worth.severity, {**evidence, "count": count}, entry.at_s)


def _tempered(worth: Worth, entry: LogEntry, entries: Sequence[LogEntry], first: bool) -> Worth:
    """A warning at most where nobody can say that the event began, or that it is no part of the machine's start.

    Some boards write a critical interrupt that names no part each time they start.
    """
    vague = worth.fault == "bmc_critical_interrupt" and sel_rules.names_no_part(entry)
    starting = first or any(
        sel_rules.starts_the_machine(e) and abs(e.at_s - entry.at_s) <= _BOOT_S for e in entries if vague
    )
    if (vague and starting) or not entry.directed:
        return replace(worth, severity=min(worth.severity, Severity.WARNING))
    return worth


def _comparable(entry: LogEntry, clock: Stamp) -> bool:
    return min(entry.at_s, clock.at_s) >= 0 and entry.zone == clock.zone
