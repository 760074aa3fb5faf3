"""The driver's lines as gpu_xid reads, remembers and assesses them. A line is parsed once, when it is read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nodetriage.checks.model import KernelRecord
from nodetriage.checks.readers.nvidia_log import XidLine
from nodetriage.checks.readers.pci_presence import NOT_LOOKED, Presence
from nodetriage.checks.rules.xid_rules import Assessment, assess

DAY_S = 86_400.0
# Lines of one kind on one device that are closer than this are remembered as one: a storm must not grow the memory.
_MERGE_S = 60.0
_MOST = 2_000
_KEPT_CHARS = 400  # of a line
# A reset of the GPU, which ends with the driver's "no action needed", is the cure of these.
_CURED_BY_RESET = (
    "gpu_recovery_action", "gpu_ecc_uncorrectable", "gpu_ecc_uncontained", "gpu_ecc_contained",
    "gpu_row_remap_pending", "gpu_gsp_timeout", "gpu_context_switch_timeout", "gpu_nvlink_error", "gpu_xid_fatal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the driver, or in the memory several of the same kind: `line` is the first of them."""

    at_s: float  # seconds since boot
    line: XidLine
    last_s: float | None = None  # of the last line, where there are several
    lines: int = 1

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


def entry_of(record: KernelRecord, line: XidLine) -> Entry:
    return Entry(max(record.at_us, 0) / 1e6, replace(line, rest=line.rest[:_KEPT_CHARS]))


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
    """The entries that say something of health."""
    assessed = ((entry, assess(entry.line)) for entry in entries)
    return [Seen(entry, worth) for entry, worth in assessed if worth is not None]


def ended(lines: list[Seen]) -> dict[tuple[str, str], tuple[float, int]]:
    """(part, fault) that a line takes back, with when (and, for logs without stamps, where) it did so last."""
    found = {}
    for index, seen in enumerate(lines):
        if seen.worth.over:
            faults = _CURED_BY_RESET if seen.worth.fault == "gpu_recovery_action" else (seen.worth.fault,)
            found.update({(seen.line.component, fault): (seen.entry.ended_s, index) for fault in faults})
    return found


def live(lines: list[Seen]) -> dict[tuple[str, str], list[Seen]]:
    """The lines by part and fault, without those that a later one took back."""
    over, found = ended(lines), dict[tuple[str, str], list[Seen]]()
    for index, seen in enumerate(lines):
        key = (seen.line.component, seen.worth.fault)
        if not seen.worth.over and (seen.entry.ended_s, index) > over.get(key, (-1.0, -1)):
            found.setdefault(key, []).append(seen)
    return found


def uuids(entries: Iterable[Entry]) -> dict[str, str]:
    """GPU UUID by part, from the line that the driver prints before the first error of a GPU."""
    return {e.line.component: e.line.rest for e in entries if e.line.sign == "uuid"}


def extend(before: tuple[Entry, ...], now: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The memory after `now`: one day back from the newest line. Lines that name UUIDs are kept for good."""
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
    fresh = [e for e in kept.values() if newest_s - e.ended_s <= DAY_S]
    return (*names.values(), *fresh[-_MOST:])


def _kind(seen: Seen) -> object:
    return (seen.place, seen.worth.fault, seen.worth.severity, seen.worth.over)
