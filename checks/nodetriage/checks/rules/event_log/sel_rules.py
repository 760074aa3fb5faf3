"""What one entry of a BMC's event log is worth, by the table sel_events.toml, and which part it names."""

import fnmatch
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from nodetriage.checks.model import Severity
from nodetriage.checks.readers import ipmi
from nodetriage.checks.readers.sel import LogEntry

UNKNOWN = "bmc_event_unknown"
# All that `assess` gives. They stand here too, because importing a check reads no table.
FAULTS = (
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
    UNKNOWN,
)
_SEVERITIES = ("critical", "major", "warning", "info")
_NUMBER = re.compile(r"#0x[0-9a-f]{1,2}|Sensor #\d{1,3}|")  # a sensor without a name
# Parts that a maker's text names: Dell, Quanta, FreeIPMI.
_DIMM = re.compile(r"\bDIMM[ _#]?(?P<label>[A-Z]?\d{1,2}|[A-Z])\b")
_SLOT = re.compile(r"\bSlot (?P<slot>\d{1,3})\b")
_HEX_PCI = re.compile(
    r"(?:bus|fatal): ?B?([0-9a-f]{1,2})[ /](?:device:|D)([0-9a-f]{1,2})[ /](?:function:|F)0?([0-7])\b", re.IGNORECASE
)
_DECIMAL_PCI = re.compile(r"\bBus (\d{1,3}), Device (\d{1,2}), Function ([0-7])\b")


@dataclass(frozen=True, slots=True)
class Worth:
    """`fault` is empty where the entry is no fault. `word` names the event while it lasts."""

    component: str
    fault: str = ""
    severity: Severity = Severity.INFO
    word: str = ""
    ends: tuple[str, ...] = ()  # patterns of the words that are over for this component


def assess(entry: LogEntry) -> Worth:
    """An event that the table does not know is an info where the tool printed no event or no type, and else nothing."""
    table = _table()
    kind, name = _split(entry.sensor)
    event, detail = _word(entry.event), entry.detail
    component = _component(entry, kind)
    if entry.panic:
        return Worth(component, "bmc_host_stopped", Severity.MAJOR, "panic")
    for rule in table["named"]:
        if _fits(rule, kind, name, event, detail, entry.asserted):
            severity = Severity[rule["severity"].upper()] if "severity" in rule else None
            return Worth(component, rule["fault"], severity, event or detail) if severity else Worth(component)
    if kind not in table["types"]:
        return Worth(component) if event in table["ends"] else Worth(ipmi.BMC, UNKNOWN, Severity.INFO, event)
    return _standard(table, kind, component, _known(table, kind, event, detail.lower()), entry.asserted)


def starts_the_machine(entry: LogEntry) -> bool:
    """Whether it is an entry that boards write while they start."""
    return _word(entry.event) in _table()["boot"]


def names_no_part(entry: LogEntry) -> bool:
    """Whether the sensor has only a number and the event no detail."""
    kind, name = _split(entry.sensor)
    return bool(_NUMBER.fullmatch(name)) and _component(entry, kind) == entry.sensor


def lasting(fault: str) -> bool:
    """Whether the end of the event leaves the fault open."""
    return fault in _table()["lasting"]


def _standard(table: Mapping[str, Any], kind: str, component: str, event: str, asserted: bool) -> Worth:
    own, every = table["types"][kind], table["types"][""]
    ends = (event if not asserted else f"!{event}", *(table["ends"].get(event, ()) if asserted else ()))
    word = event if asserted else f"!{event}"
    severity = next((s for s in (_severity(own, word), _severity(every, word)) if s is not None), None)
    if severity is None and event not in table["ends"] and asserted and "other" in own:
        severity = Severity[own["other"].upper()]
    if severity is None and not event and asserted:
        return Worth(ipmi.BMC, UNKNOWN, Severity.INFO, word)
    if severity is None or severity is Severity.INFO:
        return Worth(component, ends=ends)
    fault = next((f for f, events in own.get("events", {}).items() if event in events), own["fault"])
    return Worth(component, fault, severity, word, ends)


def _known(table: Mapping[str, Any], kind: str, event: str, detail: str) -> str:
    """The event as ipmitool writes it; the detail where there is no event."""
    more = f"{event} ; {detail.partition(' ; ')[0]}"
    if more in table["freeipmi"]:
        return str(table["freeipmi"][more])
    event = "config error" if event.startswith("config error: ") else event or detail
    return event if _severity(table["types"][kind], event) is not None else str(table["freeipmi"].get(event, event))


def _severity(of: Mapping[str, Any], word: str) -> Severity | None:
    return next((Severity[name.upper()] for name in _SEVERITIES if word in of.get(name, ())), None)


def _fits(rule: Mapping[str, str], kind: str, name: str, event: str, detail: str, asserted: bool) -> bool:
    wanted = (("name", name), ("event", event), ("detail", detail))
    return (
        rule.get("type", kind) == kind
        and rule.get("begins", "asserted" if asserted else "deasserted") == ("asserted" if asserted else "deasserted")
        and all(re.fullmatch(rule[key], text) for key, text in wanted if key in rule)
    )


def _split(sensor: str) -> tuple[str, str]:
    """The type, as the table writes it, and the sensor's name; "Unknown" where no type begins the text."""
    for written, kind in _types():
        if sensor.lower().startswith(written) and sensor[len(written) : len(written) + 1] in ("", " "):
            return kind, sensor[len(written) :].strip()
    return "Unknown", sensor.removeprefix("Unknown").strip()


def _word(event: str) -> str:
    """The event in the table's form."""
    return re.sub(r"[`']", "", event.lower()).replace(" - ", " ").strip()


def _component(entry: LogEntry, kind: str) -> str:
    if kind == "OS Critical Stop":
        return kind  # its sensor's number is a letter of the panic's text
    if found := _DIMM.search(entry.detail):
        return f"DIMM {found['label']}"
    if found := _HEX_PCI.search(entry.detail):
        return "0000:{:02x}:{:02x}.{}".format(*(int(n, 16) for n in found.groups()))
    if found := _DECIMAL_PCI.search(entry.detail):
        return "0000:{:02x}:{:02x}.{}".format(*(int(n) for n in found.groups()))
    if found := _SLOT.search(entry.detail):
        return f"Slot {found['slot']}"
    return entry.sensor


@cache
def _types() -> tuple[tuple[str, str], ...]:
    """How each tool writes a type, in lower case, and the table's form; the longest first."""
    table = _table()
    known = {kind: kind for kind in table["types"] if kind} | table["type_names"]
    return tuple(sorted(((written.lower(), kind) for written, kind in known.items()), key=lambda pair: -len(pair[0])))


@cache
def _table() -> dict[str, Any]:
    text = (resources.files("nodetriage.checks.rules.event_log") / "sel_events.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def over(patterns: tuple[str, ...], word: str) -> bool:
    """Whether the event of this word is over."""
    return any(fnmatch.fnmatchcase(word, pattern) for pattern in patterns)
