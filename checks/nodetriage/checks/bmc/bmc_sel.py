"""New entries of the BMC's system event log that report a hardware failure, and a log that is full.

Asks `ipmitool sel info`, `sel time get` and `sel elist last N` (IPMI 2.0, chapters 31 and 42). The check never clears
the log: it is evidence, and other programs remember their place in it. rules/event_log has what an entry is worth.
Where the site names a Redfish service, the entries of its hardware log that the SEL does not have count too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers import ipmi, sel
from nodetriage.checks.readers.redfish.log import HardwareLog, read_log
from nodetriage.checks.readers.redfish.service import instead
from nodetriage.checks.rules.event_log import redfish_rules, sel_follow, sel_rules


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
    redfish: HardwareLog | None = None  # what the Redfish service has; None where the site names none


def read(host: Host) -> EventLog:
    """Raises Unavailable without both logs; ipmi.Silent where the BMC does not answer; OSError, ValueError."""
    try:
        log = sel.read_log(host)
    except Unavailable as missing:
        return EventLog(-1.0, 0, overflow=False, entries=(), redfish=instead(read_log, host, missing))
    try:
        second = read_log(host)
    except Unavailable:
        second = None
    except (OSError, ValueError):
        host.exclude("redfish")
        second = None
    return EventLog(
        log.clock.at_s, log.used_pct, log.overflow, log.entries, log.clock.zone, strange=log.strange, redfish=second
    )


def judge(now: EventLog, before: EventLog | None, policy: Policy) -> Iterator[Finding]:
    if now.overflow or now.used_pct >= policy.full_at_pct:
        full: dict[str, Scalar] = {"used_pct": now.used_pct, "overflow": now.overflow}
        yield Finding(ipmi.BMC, "bmc_log_full", Severity.WARNING, full)
    new = _new(now, before, policy.first_look_h * 3600)
    begun = sel_follow.follow((), new, first=before is None).begun
    earlier = before.redfish if before else None
    known = [one for one in begun if not redfish_rules.in_redfish(one, earlier)]
    for one in (*known, *_only_in_redfish(now, before, policy)):
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
    redfish = now.redfish or (before.redfish if before else None)
    return replace(now, entries=tuple(known)[-2 * sel.LAST :], open=still, redfish=redfish)


def _only_in_redfish(now: EventLog, before: EventLog | None, policy: Policy) -> Iterable[sel_follow.Begun]:
    if now.redfish is None:
        return ()
    earlier = before.redfish if before else None
    first_look_s = policy.first_look_h * 3600 if before is None else 0.0
    return redfish_rules.beyond(redfish_rules.new(now.redfish, earlier, first_look_s), now.entries)


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
    faults=(*sel_rules.FAULTS, *redfish_rules.FAULTS, "bmc_log_full"),
    worker="bmc",
    timeout_s=200,
    next_state=next_state,
    clears=clears,
)
