"""What a line of the driver is worth beside what the machine itself says of the device that the line names."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from nodetriage.checks.model import Confidence, Finding, Scalar, Severity
from nodetriage.checks.readers.nvidia_log import XidLine
from nodetriage.checks.readers.pci_presence import Presence
from nodetriage.checks.rules.kernel_log import TEXT_LIMIT, UNKNOWN_DEVICE
from nodetriage.checks.rules.xid_log import Entry

_OFF_BUS = "gpu_off_bus"
_XID_OFF_BUS = 79


def says_off_bus(line: XidLine) -> bool:
    return line.code == _XID_OFF_BUS or line.sign == "off_bus"


def found_again(entries: Iterable[Entry]) -> set[str]:
    """The devices that the kernel itself found on the bus: they are, or were, here."""
    return {e.line.component for e in entries if e.line.sign == "found_again"}


def of_known_devices(entries: Iterable[Entry], here: Collection[str]) -> tuple[Entry, ...]:
    """Those about devices that are on the bus, or were in this boot; and those that name none."""
    return tuple(e for e in entries if e.line.pci is None or e.line.component in here)


def unknown_devices(entries: Iterable[Entry], here: Collection[str]) -> Iterator[Finding]:
    """One warning for each device that lines name and this machine never had in this boot."""
    lines: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.line.pci is not None and entry.line.sign != "uuid" and entry.line.component not in here:
            lines.setdefault(entry.line.component, []).append(entry)
    for component, group in lines.items():
        first = group[0].line
        text = f"{first.kind} {first.code or first.sign}: {first.rest}"[:TEXT_LIMIT]
        evidence: dict[str, Scalar] = {"text": text, "lines": len(group), "at_boot_s": round(group[0].at_s, 3)}
        yield Finding(component, UNKNOWN_DEVICE, Severity.WARNING, evidence, Confidence.LINE)


def witnessed(finding: Finding, devices: Presence, here: Collection[str]) -> Finding:
    """The finding with its confidence. A GPU that a line puts off the bus and that answers is no reason to end jobs."""
    component = finding.component
    if component not in here:
        return replace(finding, confidence=Confidence.LINE)
    if finding.fault != _OFF_BUS:
        return replace(finding, confidence=Confidence.DEVICE)
    if component in devices.answering:
        evidence = {**finding.evidence, "device": "answers on PCIe"}
        return replace(finding, severity=Severity.MAJOR, evidence=evidence, confidence=Confidence.LINE)
    if component not in devices.on_bus or component in devices.silent:
        evidence = {**finding.evidence, "device": "does not answer on PCIe"}
        return replace(finding, evidence=evidence, confidence=Confidence.WITNESSED)
    return replace(finding, confidence=Confidence.DEVICE)
