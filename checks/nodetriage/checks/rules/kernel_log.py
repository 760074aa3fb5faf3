"""From the lines of the kernel's log to findings, by a table of rules: one finding a part and fault, its burst folded.

A check of this kind reads with `read_log`, which makes events of its lines (`join` puts the lines of one report
together first), judges with `judged`, and keeps `remembered`. Three things lower what a line is worth:
- it names a device that is not here and was not in this boot: a warning, `kernel_line_unknown_device`;
- it is history: the check has never looked at this boot's log before and the line is older than `history_after_s`. What
  lasts until a reset is then at most major, all else info;
- the site's `severity` for the fault.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Confidence, Finding, Host, KernelRecord, Scalar, Severity
from nodetriage.checks.model.kernel_rules import PCI, KernelRules

TEXT_LIMIT = 240  # characters of a line that are kept as evidence
UNKNOWN_DEVICE = "kernel_line_unknown_device"
_OF_PREFIX = ("driver", "device", "host")  # groups of PREFIXES, which the component tells
_PCI = re.compile(PCI)


@dataclass(frozen=True, slots=True)
class KernelLogPolicy:
    """What lines are worth beside what the tables say."""

    severity: Mapping[str, Severity] = field(default_factory=dict)  # by fault, instead of the tables' severities
    history_after_s: float = 3600.0  # age of a line above which the first look in a boot takes it for history


@dataclass(frozen=True, slots=True)
class Line:
    """A record that a rule fits. `groups` are the named parts of its expression."""

    rule: str
    component: str
    text: str
    at_s: float  # since boot; -1 where the record carries no stamp
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """What one line, or one report of many lines, says of one part. A None stands for what its rule says."""

    rule: str
    component: str
    text: str
    at_s: float
    last_s: float
    lines: int = 1
    fault: str | None = None
    severity: Severity | None = None
    state: str | None = None
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """What the kernel said since the last look. `devices` are the names of what is here, None where that is not known.

    In a check's memory: the devices that were here since boot, and no event.
    """

    events: tuple[Event, ...] = ()
    devices: tuple[str, ...] | None = None
    now_s: float = 0.0


Join = Callable[[Sequence[Line], KernelRules], Iterable[Event]]


def lines_of(records: Iterable[KernelRecord], rules: KernelRules) -> list[Line]:
    """The records that a rule fits, in their order."""
    found = []
    for record in records:
        if fit := rules.match(record.text):
            at_s = round(record.at_us / 1e6, 3) if record.at_us >= 0 else -1.0
            groups = {name: value for name, value in fit.found.groupdict().items() if value is not None}
            found.append(Line(fit.rule.name, fit.component, record.text[:TEXT_LIMIT], at_s, groups))
    return found


def each_line(lines: Sequence[Line], rules: KernelRules) -> Iterator[Event]:
    """An event for each line whose rule has a fault."""
    for line in lines:
        if rules[line.rule].fault:
            yield event_of(line)


def event_of(line: Line, **known: Scalar) -> Event:
    """`known` are further facts for the evidence, beside what the rule's expression names."""
    named = {name: value for name, value in line.groups.items() if name not in _OF_PREFIX}
    return Event(line.rule, line.component, line.text, line.at_s, line.at_s, facts={**named, **known})


def read_log(
    host: Host,
    rules: KernelRules,
    join: Join = each_line,
    devices: Callable[[Host], tuple[str, ...] | None] = lambda host: None,
) -> Log:
    """The new lines as events. `devices` gives the names of what is here; None: lines count whatever they name."""
    events = tuple(folded(join(lines_of(host.kernel_log(), rules), rules)))
    return Log(events, devices(host), host.boottime_s() if events else 0.0)


def pci_addresses(host: Host) -> tuple[str, ...] | None:
    """The addresses of all PCI devices; None where there is no PCI bus to look at."""
    return tuple(device.address for device in host.pci_devices()) or None


def folded(events: Iterable[Event]) -> Iterator[Event]:
    """One event for all of one rule, part and worth in one run: its first text and facts, its first and last moment."""
    found: dict[tuple[object, ...], Event] = {}
    for event in events:
        key = (event.rule, event.component, event.fault, event.severity, event.state)
        known = found.get(key)
        found[key] = event if known is None else _both(known, event)
    yield from found.values()


def _both(first: Event, more: Event) -> Event:
    return replace(first, lines=first.lines + more.lines, last_s=max(first.last_s, more.last_s))


def is_on_bus(component: str, devices: Sequence[str]) -> bool:
    """A PCI device has to be among the devices; what is no PCI address may be anything."""
    return component in devices or not _PCI.fullmatch(component)


def judged(
    now: Log,
    before: Log | None,
    rules: KernelRules,
    policy: KernelLogPolicy,
    is_here: Callable[[str, Sequence[str]], bool] = is_on_bus,
) -> Iterator[Finding]:
    """One finding a part and fault, from the gravest of its events. `is_here`: whether the component is a device."""
    devices = remembered(before, now).devices
    found: dict[tuple[str, str], list[tuple[Severity, Event]]] = {}
    for event in now.events:
        fault, severity = _worth(event, now.now_s, before is None, rules, policy)
        if devices is not None and not is_here(event.component, devices):
            fault, severity = UNKNOWN_DEVICE, min(severity, Severity.WARNING)
        found.setdefault((event.component, fault), []).append((severity, event))
    for (component, fault), group in found.items():
        severity, worst = max(group, key=lambda pair: pair[0])  # of equals the first
        confidence = Confidence.LINE if fault == UNKNOWN_DEVICE else Confidence.DEVICE
        yield Finding(component, fault, severity, _evidence(worst, [event for _, event in group]), confidence)


def _worth(
    event: Event, now_s: float, is_first: bool, rules: KernelRules, policy: KernelLogPolicy
) -> tuple[str, Severity]:
    rule = rules[event.rule]
    fault = event.fault or rule.fault
    severity = policy.severity.get(fault, rule.severity if event.severity is None else event.severity)
    if is_first and 0 <= event.last_s < now_s - policy.history_after_s:
        lasts = (event.state or rule.state) == "lasting"
        severity = min(severity, Severity.MAJOR if lasts else Severity.INFO)
    return fault, severity


def _evidence(worst: Event, group: Sequence[Event]) -> dict[str, Scalar]:
    lines, last_s = sum(e.lines for e in group), max(e.last_s for e in group)
    known: dict[str, Scalar] = {
        "text": worst.text,
        "rule": worst.rule,
        "lines": lines,
        "at_boot_s": min(e.at_s for e in group),
    }
    return {**worst.facts, **known, **({"last_at_boot_s": last_s} if lines > 1 else {})}


def remembered(before: Log | None, now: Log) -> Log:
    """The devices that were here since boot."""
    known = (now.devices, before.devices if before else None)
    if before is not None and known[0] == known[1]:
        return before
    if known == (None, None):
        return Log()
    return Log(devices=tuple(sorted({*(known[0] or ()), *(known[1] or ())})))
