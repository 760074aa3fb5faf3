"""The BMC's event log (SEL) as `ipmitool sel elist` and FreeIPMI's `ipmi-sel -v --output-event-state` print it.

The forms differ by version (ipmitool 1.8.11 to 1.8.19, FreeIPMI 1.6). What stands between the columns is text of the
BMC, of a maker, or of a kernel that panicked (records E0h to FFh): it is never taken for a column.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers import ipmi

LAST = 64  # entries in each run; a slow BMC takes half a minute to print a thousand
_RECORD_BYTES = 16
_TEXT_LEN = 200  # characters of one column that are kept
_PANIC = "Linux kernel panic:"  # record F0h
_MAKERS = re.compile(r"OEM record [c-f][0-9a-f]")
_RECORD = re.compile(r"[0-9a-fA-F]{1,4}")
_DETAIL = re.compile(r"(?P<event>[^(]*)(?:\((?P<detail>.*?)\)?)?")  # the text may be cut, without its last bracket
_DIRECTIONS = {"Asserted": True, "Deasserted": False}
_FREEIPMI_DATE = re.compile(r"[A-Z][a-z]{2}-\d{2}-\d{4}|N/A|Post-?Init")
_FREEIPMI_DIRECTIONS = {"Assertion Event": True, "Deassertion Event": False, "N/A": True}
_US, _ISO = r"(?P<m>\d{2})/(?P<d>\d{2})/(?P<y>\d{4}|\d{2})", r"(?P<Y>\d{4})-(?P<M>\d{2})-(?P<D>\d{2})"
_GERMAN = r"(?P<t>\d{2})\.(?P<n>\d{2})\.(?P<j>\d{4})"
_TIME = r"(\d{2}):(\d{2}):(\d{2})(?: (AM|PM))?(?: ([A-Z]{1,5}|[+-]\d{2}(?:\d{2})?))?"
_DATE = re.compile(f"(?:{_US}|{_ISO}|{_GERMAN}) {_TIME}")
# Zones whose letters mean one offset wherever they stand, in hours. CST, IST and BST do not.
_HOURS = {"": 0, "UTC": 0, "GMT": 0, "Z": 0, "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8}
_HOURS |= {"PDT": -7, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "JST": 9, "KST": 9}


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment by a clock of the BMC, seconds since 1970; -1 where it was not set or not understood.

    `zone` has letters whose offset nobody knows; such a moment can be compared only with one of the same letters.
    """

    at_s: float = -1.0
    zone: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry. `sensor` is its type and name, as in "Memory DIMM_C2"; `detail` is what the tool adds to the event."""

    record: int
    at_s: float  # as in Stamp
    sensor: str
    event: str
    asserted: bool
    zone: str = ""
    detail: str = ""
    directed: bool = True  # False: the tool did not print whether the event began or ended
    panic: bool = False  # a piece of the text of a kernel panic, which is in `detail`


@dataclass(frozen=True, slots=True)
class Log:
    """The newest entries, oldest first; `strange` lines are of no known form."""

    clock: Stamp
    used_pct: int
    overflow: bool
    entries: tuple[LogEntry, ...]
    strange: int


def read_log(host: Host) -> Log:
    """From ipmitool, or from FreeIPMI where that is not installed.

    Raises Unavailable without both or without a BMC; ipmi.Silent where the BMC does not answer; ValueError.
    """
    try:
        about = ipmi.ask(host, "sel", "info")
    except Unavailable as missing:
        return _by_freeipmi(host, missing)
    facts = _facts(about)
    used = facts.get("Percent Used", "").rstrip("%")
    count = facts.get("Entries", "")
    if not count.isdecimal():
        raise ValueError(f"ipmitool sel info: Entries: expected a number, got {count[:80]!r}")
    text = ipmi.ask(host, "sel", "elist", "last", str(LAST)) if int(count) else ""
    newest, strange = log_entries(text)
    if int(count) and not newest:
        raise ValueError(f"ipmitool sel elist: expected some of {count} entries, got {text[:80]!r}")
    clock = stamp(ipmi.ask(host, "sel", "time", "get"))
    overflow = facts.get("Overflow", "false") == "true"
    return Log(clock, int(used) if used.isdecimal() else 0, overflow, newest, strange)


def _by_freeipmi(host: Host, missing: Unavailable) -> Log:
    """Without the cache of sensor names, which the program would have to write; `missing` without FreeIPMI."""
    listed = ("ipmi-sel", "-v", "--output-event-state", "--no-header-output", "--ignore-sdr-cache", f"--tail={LAST}")
    answers = []
    for argv in (("ipmi-sel", "--info"), listed, ("bmc-device", "--get-sel-time")):
        try:
            program = host.run(argv, ipmi.ASK_TIMEOUT_S)
        except Unavailable:
            raise missing from None
        except TimeoutError as error:
            raise ipmi.Silent(f"{argv[0]}: {error}") from error
        words = program.stderr.strip()[:200]
        if "could not find inband device" in words:
            raise Unavailable(f"no BMC: {argv[0]}: {words}")
        if "timeout" in words or "busy" in words:
            raise ipmi.Silent(f"{argv[0]}: {words}")
        if program.status:
            raise ValueError(f"{argv[0]}: status {program.status}: {words}")
        answers.append(program.stdout)
    facts = _facts(answers[0])
    count, free = facts.get("Number of log entries", ""), facts.get("Free space remaining", "").partition(" ")[0]
    if not count.isdecimal() or not free.isdecimal():
        raise ValueError(f"ipmi-sel --info: expected the number of entries and the free space, got {answers[0][:80]!r}")
    newest, strange = log_entries(answers[1])
    if int(count) and not newest:
        raise ValueError(f"ipmi-sel: expected some of {count} entries, got {answers[1][:80]!r}")
    used_bytes = _RECORD_BYTES * int(count)
    used_pct = 100 * used_bytes // max(1, used_bytes + int(free))
    overflow = facts.get("Events dropped due to lack of space", "No") != "No"
    return Log(stamp(_facts(answers[2]).get("SEL Time", "").replace(" - ", " ")), used_pct, overflow, newest, strange)


def _facts(text: str) -> dict[str, str]:
    """Lines of NAME : VALUE."""
    pairs = (line.partition(":")[::2] for line in text.splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


def log_entries(text: str) -> tuple[tuple[LogEntry, ...], int]:
    """The entries, oldest first, and how many lines are of no known form."""
    found = []
    strange = 0
    for line in text.splitlines():
        if not line.strip() or line.startswith(("SEL has no entries", "ID ")):
            continue
        entry = _entry([_clean(field) for field in line.split("|")])
        if entry is None:
            strange += 1
        else:
            found.append(entry)
    return tuple(found), strange


def stamp(text: str) -> Stamp:
    """A date and a time; without a zone it is UTC.

    MM/DD/YY, MM/DD/YYYY, YYYY-MM-DD and DD.MM.YYYY, each with or without AM or PM and a zone: what ipmitool prints
    depends on its version and on the locale.
    """
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return Stamp()
    year, month, day = (int(next(filter(None, found.group(*names)))) for names in ("yYj", "mMn", "dDt"))
    hour, minute, second = (int(found[n]) for n in (10, 11, 12))
    if found[13]:
        hour = hour % 12 + (12 if found[13] == "PM" else 0)
    zone = found[14] or ""
    try:
        at = datetime(year if year > 99 else 2000 + year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return Stamp()
    if zone[:1] in ("+", "-"):
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:] or 0))
        at = at - offset if zone[0] == "+" else at + offset
        zone = ""
    elif zone in _HOURS:
        at, zone = at - timedelta(hours=_HOURS[zone]), ""
    return Stamp(at.timestamp(), zone)


def _clean(field: str) -> str:
    return "".join(c if c.isprintable() else " " for c in field).strip()[:_TEXT_LEN]


def _entry(fields: list[str]) -> LogEntry | None:
    """None for a line of no known form."""
    if len(fields) < 2 or not _RECORD.fullmatch(fields[0]):
        return None
    if len(fields) >= 6 and _FREEIPMI_DATE.fullmatch(fields[1]):
        return _freeipmi(fields)
    record = int(fields[0], 16)
    if fields[1].startswith(_PANIC):
        words = "|".join(fields[1:]).removeprefix(_PANIC).strip()
        return LogEntry(record, -1.0, "OS Critical Stop", "", asserted=True, detail=words, panic=True)
    if _MAKERS.fullmatch(fields[1]):
        return LogEntry(record, -1.0, fields[1], "", asserted=True)
    if len(fields) < 4:
        return None
    at = stamp(f"{fields[1]} {fields[2]}")
    if _MAKERS.fullmatch(fields[3]):
        return LogEntry(record, at.at_s, fields[3], "", asserted=True, zone=at.zone)
    if len(fields) < 5:
        return None
    # A text within an event may hold a pipe: the event ends where the direction stands.
    ends = next((n for n in range(5, len(fields)) if fields[n] in _DIRECTIONS), None)
    # 1.8.11 prints no direction for thresholds and generic events; elist adds the reading.
    found = _DETAIL.fullmatch("|".join(fields[4:ends] if ends else fields[4:5]))
    asserted = _DIRECTIONS[fields[ends]] if ends else True
    event, detail = (found["event"], found["detail"] or "") if found else (fields[4], "")
    return LogEntry(record, at.at_s, fields[3], event.strip(), asserted, at.zone, detail.strip(), ends is not None)


def _freeipmi(fields: list[str]) -> LogEntry | None:
    """ID | Date | Time | Name | Type | State | Event Direction | Event, as `-v` prints."""
    if not fields[0].isdecimal() or len(fields) < 8 or fields[6] not in _FREEIPMI_DIRECTIONS:
        return None
    event, _, detail = "|".join(fields[7:]).partition(" ; ")
    try:
        moment = datetime.strptime(f"{fields[1]} {fields[2]}", "%b-%d-%Y %H:%M:%S").replace(tzinfo=UTC)
        at_s = moment.timestamp()
    except ValueError:
        at_s = -1.0  # N/A: a record without a date, or a clock that was not set
    if fields[4] == "N/A":
        return LogEntry(int(fields[0]), at_s, "OEM record", "", asserted=True)
    sensor = f"{fields[4]} {fields[3]}"
    return LogEntry(int(fields[0]), at_s, sensor, event, _FREEIPMI_DIRECTIONS[fields[6]], detail=detail)
