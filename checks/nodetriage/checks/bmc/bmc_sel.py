"""New entries of the BMC's system event log that report a hardware failure, and a log that is full.

Asks `ipmitool sel info`, `sel time get` and `sel elist last N` (IPMI 2.0, chapters 31 and 42). The check never clears
the log: it is evidence, and other programs remember their place in it. rules/sel_events.toml says what it is worth.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity
from nodetriage.checks.readers import ipmi, sel
from nodetriage.checks.rules import sel_follow, sel_rules

_LAST = 64  # entries in each run; a slow BMC takes half a minute to print a thousand


@dataclass(frozen=True, slots=True)
class Policy:
    """The first run of a boot cannot tell which entries are new: an old one may be why the machine was rebooted, or may
    have been repaired since."""

    first_look_h: float = 1.0  # in the first run only entries younger than this count
    first_look: Severity = Severity.MAJOR  # and they get at most this severity
    full_at_pct: int = 90  # the log counts as full from here on


@dataclass(frozen=True, slots=True)
class EventLog:
    """`now_s` and `zone` are the BMC's clock, as in sel.Stamp."""

    now_s: float
    used_pct: int
    overflow: bool
    entries: tuple[sel.LogEntry, ...]  # the newest, oldest first
    zone: str = ""
    open: tuple[sel_follow.Open, ...] = ()  # events of earlier runs that have not ended
    strange: int = 0  # lines of no known form


def read(host: Host) -> EventLog:
    """Raises Unavailable without ipmitool or a BMC; ipmi.Silent where the BMC does not answer; ValueError."""
    about = dict(line.partition(":")[::2] for line in ipmi.ask(host, "sel", "info").splitlines())
    facts = {name.strip(): value.strip() for name, value in about.items()}
    used = facts.get("Percent Used", "").rstrip("%")
    count = facts.get("Entries", "")
    if not count.isdecimal():
        raise ValueError(f"ipmitool sel info: Entries: expected a number, got {count[:80]!r}")
    text = ipmi.ask(host, "sel", "elist", "last", str(_LAST)) if int(count) else ""
    newest, strange = sel.log_entries(text)
    if int(count) and not newest:
        raise ValueError(f"ipmitool sel elist: expected some of {count} entries, got {text[:80]!r}")
    now = sel.stamp(ipmi.ask(host, "sel", "time", "get"))
    overflow = facts.get("Overflow", "false") == "true"
    return EventLog(now.at_s, int(used) if used.isdecimal() else 0, overflow, newest, now.zone, strange=strange)


def judge(now: EventLog, before: EventLog | None, policy: Policy) -> Iterator[Finding]:
    if now.overflow or now.used_pct >= policy.full_at_pct:
        full: dict[str, Scalar] = {"used_pct": now.used_pct, "overflow": now.overflow}
        yield Finding(ipmi.BMC, "bmc_log_full", Severity.WARNING, full)
    new = _new(now, before, policy.first_look_h * 3600)
    for one in sel_follow.follow((), new, first=before is None).begun:
        severity = min(one.severity, policy.first_look) if before is None else one.severity
        yield Finding(one.component, one.fault, severity, {**one.evidence, "first_look": before is None})
    if now.strange and (before is None or before.strange != now.strange):
        yield Finding(ipmi.BMC, sel_rules.UNKNOWN, Severity.INFO, {"lines": now.strange})


def clears(now: EventLog, before: EventLog | None) -> Iterable[tuple[str, str]]:
    """What entries since the last run end: a later entry took the event back."""
    return sel_follow.follow(before.open, _new(now, before, 0.0)).over if before else ()


def next_state(before: EventLog | None, now: EventLog) -> EventLog:
    """The newest entries and those of the run before: after a shortened answer no old entry counts as new."""
    known = dict.fromkeys((*(before.entries if before else ()), *now.entries))
    new = _new(now, before, 0.0) if before else now.entries
    still = sel_follow.follow(before.open if before else (), new).open
    return replace(now, entries=tuple(known)[-2 * _LAST :], open=still)


def _new(now: EventLog, before: EventLog | None, first_look_s: float) -> tuple[sel.LogEntry, ...]:
    clock = sel.Stamp(now.now_s, now.zone)
    if before is None:
        return sel_follow.younger(now.entries, clock, first_look_s)
    return sel_follow.after(before.entries, now.entries, sel.Stamp(before.now_s, before.zone))


CHECK = Check(
    name="bmc_sel",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "bmc_critical_interrupt",
        "bmc_bus_corrected",
        "bmc_memory_uncorrectable",
        "bmc_memory_correctable_limit",
        "bmc_memory_degraded",
        "bmc_processor",
        "bmc_throttled",
        "bmc_thermal",
        "bmc_cooling",
        "bmc_power",
        "bmc_power_supply",
        "bmc_drive",
        "bmc_board",
        "bmc_firmware",
        "bmc_host_stopped",
        "bmc_hardware_failure",
        "bmc_management",
        "bmc_event_unknown",
        "bmc_log_full",
    ),
    worker="bmc",
    timeout_s=200,
    next_state=next_state,
    clears=clears,
)
