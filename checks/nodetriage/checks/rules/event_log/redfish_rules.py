"""Which entries of a Redfish service's hardware log are faults, and which of them the SEL does not have too."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.readers import ipmi
from nodetriage.checks.readers.redfish.log import HardwareLog, LogEntry
from nodetriage.checks.readers.redfish.service import name_of
from nodetriage.checks.readers.sel import LogEntry as SelEntry
from nodetriage.checks.rules.event_log import sel_rules
from nodetriage.checks.rules.event_log.sel_follow import Begun

FAULTS = ("bmc_gpu", "bmc_leak_logged")  # those that the SEL never gives
_SEVERITIES = {"Warning": Severity.WARNING, "Critical": Severity.CRITICAL}
_SAME_S = 120.0  # how far apart a BMC may write one event into both of its logs
_AHEAD_S = 60.0


def assess(entry: LogEntry) -> tuple[str, str, Severity] | None:
    """(component, fault, severity); None where the entry is no fault, or its part is well again."""
    severity = _SEVERITIES.get(entry.severity)
    if severity is None or entry.resolved or entry.code == "Deassert":
        return None
    if entry.sensor and entry.code not in ("", "Assert"):
        worth = sel_rules.assess(SelEntry(0, entry.created_s, entry.sensor, entry.code, asserted=True))
        return (worth.component, worth.fault, min(severity, worth.severity)) if worth.fault else None
    arguments = "; ".join(entry.arguments)
    for message, wanted, fault, at_most in _rules():
        if message.fullmatch(entry.message_id) and wanted.search(arguments):
            return _component(entry), fault, min(severity, at_most)
    return None


def new(now: HardwareLog, before: HardwareLog | None, first_look_s: float) -> tuple[LogEntry, ...]:
    """The entries that no earlier run knew; in the first one those that are younger than `first_look_s`."""
    if before is None:
        since_s = max(0.0, now.now_s - first_look_s)
        return tuple(e for e in now.entries if since_s <= e.created_s <= now.now_s + _AHEAD_S)
    known = {(e.log, e.id, e.created_s) for e in before.entries}
    oldest = min((e.created_s for e in before.entries), default=-1.0)
    return tuple(e for e in now.entries if (e.log, e.id, e.created_s) not in known and e.created_s >= oldest)


def beyond(entries: Iterable[LogEntry], sel: Sequence[SelEntry]) -> tuple[Begun, ...]:
    """The faults of these entries that the SEL does not have: a BMC writes most events into both."""
    begun: dict[tuple[str, str], Begun] = {}
    for entry in entries:
        worth = assess(entry)
        if worth is None or in_sel(entry, worth[1], sel):
            continue
        component, fault, severity = worth
        earlier = begun.get((component, fault))
        count = int(earlier.evidence["count"]) + 1 if earlier else 1
        evidence: dict[str, Scalar] = {"entry": entry.id, "message_id": entry.message_id, "message": entry.message}
        if earlier and earlier.severity >= severity:
            severity, evidence = earlier.severity, dict(earlier.evidence)
        begun[component, fault] = Begun(component, fault, severity, {**evidence, "count": count})
    return tuple(begun.values())


def in_sel(entry: LogEntry, fault: str, sel: Sequence[SelEntry]) -> bool:
    """Whether the SEL has this event too: the same fault within two minutes."""
    near = (e for e in sel if e.at_s >= 0 and abs(e.at_s - entry.created_s) <= _SAME_S)
    return entry.created_s >= 0 and any(sel_rules.assess(e).fault == fault for e in near)


def in_redfish(begun: Begun, known: HardwareLog | None) -> bool:
    """Whether an earlier run had this event of the SEL from the Redfish log, which some BMCs write first."""
    near = (e for e in (known.entries if known else ()) if abs(e.created_s - begun.at_s) <= _SAME_S and begun.at_s >= 0)
    return any((worth := assess(e)) is not None and worth[1] == begun.fault for e in near)


def _component(entry: LogEntry) -> str:
    """The part that the entry links to, else the first word of its arguments."""
    word = entry.arguments[0].split(" ")[0] if entry.arguments else ""
    name = name_of(entry.origin) or word or ipmi.BMC
    return "".join(c for c in name if c.isprintable())[:200]


@cache
def _rules() -> tuple[tuple[re.Pattern[str], re.Pattern[str], str, Severity], ...]:
    text = (resources.files("nodetriage.checks.rules.event_log") / "redfish_events.toml").read_text(encoding="utf-8")
    return tuple(
        (
            re.compile(rule["message"]),
            re.compile(rule.get("arguments", "")),
            rule["fault"],
            Severity[rule.get("at_most", "critical").upper()],
        )
        for rule in tomllib.loads(text)["rule"]
    )
