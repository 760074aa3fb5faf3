"""The firmware's reports of hardware errors (CPER), put together from their records: sections with severity and fields.

Source: UEFI specification, appendix N, as drivers/firmware/efi/cper.c prints it. Each numbered report is one, whatever
lines come between its own. Reports without a number are BERT's: of the boot before this one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.model.kernel_rules import PCI, KernelRules
from nodetriage.checks.rules.kernel_log import Event, Line

FAULTS = (
    "mem_uncorrected", "mem_corrected", "pcie_fatal", "pcie_nonfatal", "pcie_correctable", "cpu_uncorrected",
    "cpu_corrected", "firmware_error", "previous_boot_error",
)  # fmt: skip
_HEADS = ("Hardware error from APEI", "Hardware error detected on CPU")
_PREVIOUS = "BERT"  # the number of BERT's reports
_FIELDS_LIMIT = 60  # of one section
# What the kernel prints as the section's type, by the kind of the part.
_KINDS = (("memory error", "memory"), ("PCIe error", "pcie"), ("CXL", "pcie"), ("processor error", "cpu"))
_SEVERITIES = {"fatal": Severity.CRITICAL, "recoverable": Severity.MAJOR, "corrected": Severity.WARNING}
_CODES = {  # by kind: uncorrected and fatal, recoverable, corrected
    "memory": ("mem_uncorrected", "mem_uncorrected", "mem_corrected"),
    "pcie": ("pcie_fatal", "pcie_nonfatal", "pcie_correctable"),
    "cpu": ("cpu_uncorrected", "cpu_uncorrected", "cpu_corrected"),
    "firmware": ("firmware_error", "firmware_error", "firmware_error"),
}
_ADDRESS = re.compile(PCI)
_PLACE = re.compile(r"node: ?(\d+) card: ?(\d+) module: ?(\d+)")


@dataclass(slots=True)
class Section:
    """One section of a report. `severity` is its own, else the report's; `fields` by the kernel's names for them."""

    first: Line
    severity: str = ""
    kind: str = ""  # memory, pcie, cpu, firmware (all others); "" before the type is known
    fields: dict[str, str] = field(default_factory=dict)
    lines: int = 1


@dataclass(slots=True)
class Report:
    """One report; `severity` is that of its worst section."""

    number: str
    first: Line
    severity: str = ""
    cpu: str = ""  # that told of it (Intel eMCA)
    sections: list[Section] = field(default_factory=list)
    lines: int = 0


def events(lines: Sequence[Line], kinds: Iterable[str], rules: KernelRules) -> Iterator[Event]:
    """What the reports among the lines say of parts of these kinds. A report without a section is the firmware's."""
    for report in reports(lines):
        if not report.severity:
            continue  # its beginning is lost, so nobody knows how grave it is
        for section in report.sections or [Section(report.first, kind="firmware")]:
            if (section.kind or "firmware") in kinds and (event := _event(report, section)):
                yield event


def reports(lines: Iterable[Line]) -> list[Report]:
    """In the order of their first lines."""
    found: list[Report] = []
    by_number: dict[str, Report] = {}
    for line in lines:
        if line.rule == "cper.bert":
            by_number.pop(_PREVIOUS, None)
        if line.rule not in ("cper.line", "cper.bert_line"):
            continue
        number, text = line.groups.get("number", _PREVIOUS), line.groups["said"]
        report = by_number.get(number)
        if report is None or text.startswith(_HEADS) or (number == _PREVIOUS and _begins(report, text)):
            report = by_number[number] = Report(number, line)
            found.append(report)
        report.lines += 1
        _take(report, line, text)
    return found


def _begins(report: Report, text: str) -> bool:
    """BERT's reports have no number: a further severity of the whole begins the next."""
    return bool(report.severity) and text.startswith("event severity: ")


def _take(report: Report, line: Line, text: str) -> None:
    name, _, value = text.strip().partition(": ")
    if name == "event severity":
        report.severity = value
    elif text.startswith("GHES: Fatal hardware error"):
        report.severity = "fatal"
    elif text.startswith(_HEADS[1]):
        report.cpu = text.rpartition("CPU")[2]
    elif name.startswith("Error ") and name.endswith(", type"):
        report.sections.append(Section(line, value))
    elif report.sections:
        section = report.sections[-1]
        section.lines += 1
        if name in ("section_type", "section type") and not section.kind:
            section.kind = next((kind for words, kind in _KINDS if words in value), "firmware")
            section.first = line
        if len(section.fields) < _FIELDS_LIMIT:
            section.fields.setdefault(name, value)


def _event(report: Report, section: Section) -> Event | None:
    severity = section.severity or report.severity
    kind = section.kind or "firmware"
    worth = _SEVERITIES.get(severity)
    if worth is None:
        return None  # "info"
    fault = _CODES[kind][(Severity.CRITICAL, Severity.MAJOR, Severity.WARNING).index(worth)]
    if kind == "cpu" and section.fields.get("Processor Context Corrupt") == "true":
        worth = Severity.CRITICAL
    state = "corrected" if severity == "corrected" else "lasting" if severity == "fatal" else "event"
    if report.number == _PREVIOUS:
        fault, worth, state = "previous_boot_error", Severity.WARNING, "info"
    first = section.first
    return Event(
        first.rule, _component(kind, section.fields), first.text, report.first.at_s, first.at_s, 1, fault, worth, state,
        _facts(report, section, severity),
    )  # fmt: skip


def _component(kind: str, fields: Mapping[str, str]) -> str:
    if kind == "memory":
        return _dimm(fields) or "memory"
    if kind == "pcie":
        return next((v for k in ("device_id", "agent_address") if _ADDRESS.fullmatch(v := fields.get(k, ""))), "pcie")
    if kind == "cpu":
        apic, mpidr = fields.get("Local APIC_ID"), fields.get("Multiprocessor Affinity Register (MPIDR)")
        return f"cpu apic {apic}" if apic else f"cpu mpidr {mpidr}" if mpidr else "cpu"
    return "firmware"


def _dimm(fields: Mapping[str, str]) -> str:
    """Its label on the board, else what the firmware calls it, else its place."""
    if label := fields.get("DIMM location", "").removeprefix("not present. DMI handle"):
        return label.strip()[:80]
    if fru := fields.get("fru_text", "").strip():
        return fru[:80]
    place = next((found for text in _texts(fields) if (found := _PLACE.search(text))), None)
    return f"node {place[1]} card {place[2]} module {place[3]}" if place else ""


def _texts(fields: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{name}: {value}" for name, value in fields.items())


def _facts(report: Report, section: Section, severity: str) -> dict[str, Scalar]:
    named = {
        "fru": "fru_text", "error": "error_type", "section": "section_type", "unknown_section": "section type",
        "address": "physical_address", "slot": "slot", "port": "port_type", "status": "aer_uncor_status",
    }  # fmt: skip
    facts: dict[str, Scalar] = {n: v[:80] for n, key in named.items() if (v := section.fields.get(key, "").strip())}
    if report.cpu:
        facts["cpu"] = report.cpu[:10]
    return {"cper_severity": severity, "report": report.number, **facts}
