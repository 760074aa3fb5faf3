"""The newest entries of the hardware logs of a Redfish service (DSP0268, LogService and LogEntry)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.redfish.service import ROOT, Resource, Service, link, name_of, objects, text, within

LAST = 64  # entries of each log in a run
_SINGLE_MAX = 8  # entries that a log lists by their links alone (older iLO) are read one by one
# The log of the hardware: OpenBMC and HGX, HPE, Lenovo, Dell, Cisco, Fujitsu, Supermicro. The first one counts.
_LOGS = ("EventLog", "IML", "PlatformLog", "ActiveLog", "Sel", "SEL", "SystemEventLog", "Log1")
_ENDED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """`created_s` is seconds since 1970 by the BMC's clock, -1 where the entry has no date that means something."""

    log: str  # the path of its log
    id: str
    created_s: float
    severity: str  # OK, Warning, Critical
    message_id: str  # without the registry's version
    arguments: tuple[str, ...]
    origin: str  # the path of the part; empty where the entry names none
    message: str
    resolved: bool = False
    sensor: str = ""  # where the entry is one of the SEL's: the sensor's type and number, as ipmitool prints them
    code: str = ""  # and its event


@dataclass(frozen=True, slots=True)
class HardwareLog:
    """`now_s` is the service's clock, -1 where it has none."""

    now_s: float = -1.0
    entries: tuple[LogEntry, ...] = ()  # oldest first


def read_log(host: Host) -> HardwareLog:
    """Raises as Host.redfish; Unavailable also where the service has no hardware log."""
    service = Service(host)
    now_s, entries = -1.0, list[LogEntry]()
    logs = list(_logs(service))
    if not logs:
        raise Unavailable("the Redfish service has no hardware log")
    for path in logs:
        about = service.get(path)
        now_s = max(now_s, moment(text(about, "DateTime")))
        entries += _entries(service, path, link(about.get("Entries")))
    return HardwareLog(now_s, tuple(sorted(entries, key=lambda e: e.created_s)))


def moment(written: str) -> float:
    """An ISO date with its zone as seconds since 1970; -1 for anything else. Dell writes offsets as -0600."""
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        return -1.0
    return found.timestamp() if found.tzinfo and _ENDED.match(written) and found.year > 2000 else -1.0


def _logs(service: Service) -> Iterator[str]:
    """One log of each system; some makers keep it with the manager or the chassis instead."""
    for owners in ("Systems", "Managers", "Chassis"):
        found = list(_logs_of(service, f"{ROOT}/{owners}"))
        if found:
            yield from found
            return


def _logs_of(service: Service, collection: str) -> Iterator[str]:
    for owner in service.members(collection)[:4]:
        paths = service.members(link(service.structure(owner).get("LogServices")) or f"{owner}/LogServices")
        by_name = {name_of(path): path for path in paths}
        chosen = next((by_name[name] for name in _LOGS if name in by_name), "")
        if chosen:
            yield chosen


def _entries(service: Service, log: str, path: str) -> Iterator[LogEntry]:
    """The newest ones: some services give the oldest first and a page at a time, others the newest first."""
    path = path or f"{log}/Entries"
    page = service.get(path)
    count, given = within(page, "Members@odata.count"), list(objects(page, "Members"))
    whole = within(page, "Members")
    listed = len(whole) if isinstance(whole, list) else 0
    if isinstance(count, int) and count > listed:
        page = service.get(f"{path}?$skip={max(0, count - LAST)}")
        given += objects(page, "Members")
    elif listed > LAST and isinstance(whole, list):
        given += [one for one in whole[-LAST:] if isinstance(one, dict)]
    singles = 0
    for member in given:
        if "Severity" not in member and link(member) and singles < _SINGLE_MAX:
            singles += 1
            member = service.get(link(member))
        if "Severity" in member:
            yield _entry(log, member)


def _entry(log: str, member: Resource) -> LogEntry:
    registry, _, rest = text(member, "MessageId").partition(".")
    key = rest.rpartition(".")[2]
    arguments = within(member, "MessageArgs")
    origin = within(member, "Links", "OriginOfCondition") or within(member, "OriginOfCondition")
    kind, number = text(member, "SensorType"), within(member, "SensorNumber")
    return LogEntry(
        log=log,
        id=text(member, "Id") or name_of(link(member)),
        created_s=moment(text(member, "Created") or text(member, "EventTimestamp")),
        severity=text(member, "Severity"),
        message_id=f"{registry}.{key}" if key else registry,
        arguments=tuple(str(a)[:200] for a in arguments[:8]) if isinstance(arguments, list) else (),
        origin=link(origin),
        message=text(member, "Message"),
        resolved=within(member, "Resolved") is True,
        sensor=f"{kind} #0x{number:02x}" if kind and isinstance(number, int) and 0 <= number < 256 else kind,
        code=text(member, "EntryCode"),
    )
