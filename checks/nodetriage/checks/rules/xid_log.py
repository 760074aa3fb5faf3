"""The driver's lines as gpu_xid reads, remembers and assesses them. A line is parsed once, when it is read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import KernelRecord
from nodetriage.checks.readers.nvidia_log import XidLine
from nodetriage.checks.readers.pci_presence import NOT_LOOKED, Presence
from nodetriage.checks.rules.xid_rules import (
    APPLICATION,
    CURED_BY_RESET,
    PREEMPTED,
    Assessment,
    assess,
    caused_by,
    cure,
    is_detail,
    of_cause,
)

DAY_S = 86_400.0
# Lines of one kind on one device that are closer than this are remembered as one: a storm must not grow the memory.
_MERGE_S = 60.0
_MOST = 2_000
_MOST_HELD = 200
_KEPT_CHARS = 400  # of a line
# A line that was this old when the check first looked tells of the past: only what the machine shows now counts.
HISTORY_S = 3_600.0
# Stands for all devices where a line ends a fault on each of them, and for none where a line names none.
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the driver, or in the memory several of the same kind: `line` is the first of them."""

    at_s: float  # seconds since boot
    line: XidLine
    last_s: float | None = None  # of the last line, where there are several
    lines: int = 1  # 0 for a line that belongs to the one before it
    is_history: bool = False  # it was HISTORY_S old when the check looked for the first time

    @property
    def ended_s(self) -> float:
        return self.at_s if self.last_s is None else self.last_s


@dataclass(frozen=True, slots=True)
class Log:
    """The driver's lines since the last run, oldest first, and the devices that they may speak of.

    In the memory: the lines of the last day, and every device that was on the bus since boot.
    """

    entries: tuple[Entry, ...] = ()
    devices: Presence = NOT_LOOKED
    at_s: float = 0.0  # when it was read; 0 where that is not known

    def as_first_look(self) -> "Log":
        """The same, with the lines marked that tell of the past."""
        entries = (replace(e, is_history=0 < e.at_s < self.at_s - HISTORY_S) for e in self.entries)
        return replace(self, entries=tuple(entries))


def entry_of(record: KernelRecord, line: XidLine) -> Entry:
    at_s = max(record.at_us, 0) / 1e6
    return Entry(at_s, replace(line, rest=line.rest[:_KEPT_CHARS]), lines=0 if is_detail(line) else 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """An entry and what it is worth."""

    entry: Entry
    worth: Assessment

    @property
    def line(self) -> XidLine:
        return self.entry.line

    @property
    def place(self) -> tuple[str, str, int | None, int | None, int | None]:
        """What has to be equal for two lines to be the same error again; for 13 the place on the chip counts."""
        gpc, tpc = (self.worth.evidence.get(k) for k in ("gpc", "tpc"))
        where = (int(gpc), int(tpc)) if gpc is not None and tpc is not None else (None, None)
        return (self.line.component, self.line.kind, self.line.code, *where)


def see(entries: Iterable[Entry]) -> list[Seen]:
    """The entries that say something of health, or end a fault."""
    assessed = ((entry, assess(entry.line) or cure(entry.line)) for entry in entries)
    return [Seen(entry, worth) for entry, worth in assessed if worth is not None]


def with_causes(lines: list[Seen]) -> list[Seen]:
    """The same, and before each Xid 45 whose cause nothing else reports, that cause as a fault of the device."""
    known = {(seen.line.component, seen.line.code) for seen in lines}
    found = []
    for seen in lines:
        code = caused_by(seen.line)
        worth = of_cause(code) if code is not None and (seen.line.component, code) not in known else None
        found += [seen] if worth is None else [Seen(seen.entry, worth), seen]
    return found


def ended(lines: list[Seen]) -> dict[tuple[str, str], tuple[float, int]]:
    """(component, fault) that a line takes back, with when (for logs without stamps: where) it did so last."""
    found = {}
    for index, seen in enumerate(lines):
        component = seen.line.component if seen.line.pci else _ALL
        found.update({(component, fault): (seen.entry.ended_s, index) for fault in seen.worth.ends})
    return found


def clears(lines: list[Seen], earlier: list[Seen]) -> Iterator[tuple[str, str]]:
    """(component, fault) that `lines` take back, on each device that they or the earlier ones name."""
    devices = dict.fromkeys(seen.line.component for seen in (*earlier, *lines))
    for component, fault in ended(lines):
        yield from ((device, fault) for device in (devices if component == _ALL else (component,)))


def live(lines: list[Seen]) -> dict[tuple[str, str], list[Seen]]:
    """The lines by component and fault, without those that a later one took back."""
    over, found = ended(lines), dict[tuple[str, str], list[Seen]]()
    never = (-1.0, -1)
    for index, seen in enumerate(lines):
        key = (seen.line.component, seen.worth.fault)
        last = max(over.get(key, never), over.get((_ALL, key[1]), never))
        if not seen.worth.over and (seen.entry.ended_s, index) > last:
            found.setdefault(key, []).append(seen)
    return found


def uuids(entries: Iterable[Entry]) -> dict[str, str]:
    """GPU UUID by part, from the line that the driver prints before the first error of a GPU."""
    return {e.line.component: e.line.rest for e in entries if e.line.sign == "uuid"}


def extend(before: tuple[Entry, ...], now: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The memory after `now`: one day back from the newest line.

    Lines that name UUIDs are kept for good, and of each fault that only a reset ends its last line until then.
    """
    newest_s = max((e.ended_s for e in (*before, *now)), default=0.0)
    names = {(e.line.component, e.line.rest): e for e in (*before, *now) if e.line.sign == "uuid"}
    kept: dict[int, Entry] = {}
    open_at: dict[object, int] = {}
    for index, seen in enumerate(see((*before, *now))):
        at = open_at.get(_kind(seen))
        if at is not None and 0 <= seen.entry.at_s - kept[at].ended_s < _MERGE_S:
            kept[at] = replace(kept[at], last_s=seen.entry.ended_s, lines=kept[at].lines + seen.entry.lines)
        else:
            kept[index] = seen.entry
            open_at[_kind(seen)] = index
    fresh = [e for e in kept.values() if newest_s - e.ended_s <= DAY_S][-_MOST:]
    wanted = {id(e) for e in (*_held(kept.values()), *fresh)}
    return (*names.values(), *(e for e in kept.values() if id(e) in wanted))


def _held(entries: Iterable[Entry]) -> list[Entry]:
    """The last line of each fault that a reset of its device would end, and that none has ended."""
    return [lines[-1].entry for (_, fault), lines in live(see(entries)).items() if fault in CURED_BY_RESET][
        -_MOST_HELD:
    ]


def _kind(seen: Seen) -> object:
    """Jobs are blamed by the process, so the errors of two programs stay apart; those of killed ones need not."""
    by_process = seen.worth.fault == APPLICATION and seen.line.code != PREEMPTED
    process = seen.line.pid if by_process else None
    return (seen.place, seen.worth.fault, seen.worth.severity, seen.worth.ends, process, seen.entry.is_history)
