"""New entries of the BMC's system event log that report a hardware failure, and a log that is full.

Asks `ipmitool sel info`, `sel time get` and `sel elist last N` (IPMI 2.0, chapters 31 and 42). The check never clears
the log: it is evidence, and other programs remember their place in it. An entry is new if no earlier run saw its record
id and time, so the check also works after somebody else cleared the log.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity
from nodetriage.checks.readers import ipmi

_LAST = 64  # entries in each run; a slow BMC takes half a minute to print a thousand
# The first rule that matches decides. A "Critical Interrupt" that a bus corrected is a warning.
_RULES: tuple[tuple[str, str, str, Severity], ...] = (
    # sensor, event, fault
    ("Critical Interrupt", "Correctable|Degraded|Software NMI|Diagnostic", "bmc_bus_corrected", Severity.WARNING),
    ("Critical Interrupt", "", "bmc_critical_interrupt", Severity.CRITICAL),
    ("Memory", "Uncorrectable|Parity", "bmc_memory_uncorrectable", Severity.CRITICAL),
    ("Memory", "limit", "bmc_memory_correctable_limit", Severity.WARNING),
    (
        "Processor",
        "IERR|Thermal Trip|FRB|Uncorrectable|Machine Check|Configuration",
        "bmc_processor",
        Severity.CRITICAL,
    ),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The first run of a boot cannot tell which entries are new: an old one may be why the machine was rebooted, or may
    have been repaired since."""

    first_look_h: float = 1.0  # in the first run only entries younger than this count
    first_look: Severity = Severity.MAJOR  # and they get at most this severity
    full_at_pct: int = 90  # the log counts as full from here on


@dataclass(frozen=True, slots=True)
class EventLog:
    """`now_s` is the BMC's clock, seconds since 1970; -1 where it cannot be read."""

    now_s: float
    used_pct: int
    overflow: bool
    entries: tuple[ipmi.LogEntry, ...]  # the newest, oldest first


def read(host: Host) -> EventLog:
    """Raises Unavailable without ipmitool or a BMC; ipmi.Silent where the BMC does not answer."""
    about = dict(line.partition(":")[::2] for line in ipmi.ask(host, "sel", "info").splitlines())
    facts = {name.strip(): value.strip() for name, value in about.items()}
    used = facts.get("Percent Used", "").rstrip("%")
    entries = facts.get("Entries", "")
    if not entries.isdecimal():
        raise ValueError(f"ipmitool sel info: Entries: expected a number, got {entries!r}")
    newest = ipmi.log_entries(ipmi.ask(host, "sel", "elist", "last", str(_LAST))) if int(entries) else ()
    now_s = ipmi.stamp(ipmi.ask(host, "sel", "time", "get").split())
    overflow = facts.get("Overflow", "false") == "true"
    return EventLog(now_s, int(used) if used.isdecimal() else 0, overflow, newest)


def judge(now: EventLog, before: EventLog | None, policy: Policy) -> Iterator[Finding]:
    if now.overflow or now.used_pct >= policy.full_at_pct:
        full: dict[str, Scalar] = {"used_pct": now.used_pct, "overflow": now.overflow}
        yield Finding(ipmi.BMC, "bmc_log_full", Severity.WARNING, full)
    first = before is None
    known = set(before.entries) if before else set()
    for entry in now.entries:
        old = entry in known or (first and not now.now_s - policy.first_look_h * 3600 <= entry.at_s <= now.now_s + 60)
        if old or not entry.asserted:
            continue
        for sensor, event, fault, severity in _RULES:
            if entry.sensor.startswith(sensor) and re.search(event, entry.event):
                worth = min(severity, policy.first_look) if first else severity
                evidence: dict[str, Scalar] = {"record": entry.record, "event": entry.event, "first_look": first}
                yield Finding(entry.sensor, fault, worth, evidence)
                break


def next_state(before: EventLog | None, now: EventLog) -> EventLog:
    """The newest entries and those of the run before: after a shortened answer no old entry counts as new."""
    known = dict.fromkeys((*(before.entries if before else ()), *now.entries))
    return replace(now, entries=tuple(known)[-2 * _LAST :])


CHECK = Check(
    name="bmc_sel",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(*dict.fromkeys(fault for _, _, fault, _ in _RULES), "bmc_log_full"),
    worker="bmc",
    timeout_s=200,
    next_state=next_state,
)
