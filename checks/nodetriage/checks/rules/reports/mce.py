"""Machine checks from their lines: what the status word says was corrected, deferred or lost, and on what.

Source: Intel SDM volume 3, IA32_MCi_STATUS (UC 61, PCC 57, S 56; compound error codes); AMD PPR, MCA_STATUS (UC 61,
PCC 57, Deferred 44); drivers/edac/mce_amd.c for the words and the unit's name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.rules.kernel_log import Event, Line

_ENABLED = 1 << 60
_UNCORRECTED, _CORRUPT, _SIGNALED, _DEFERRED = 1 << 61, 1 << 57, 1 << 56, 1 << 44
_THERMAL = "128"  # MCE_THERMAL_BANK up to 4.x: no bank, and its status is the thermal status
_AMD = "2"  # X86_VENDOR_AMD (arch/x86/include/asm/processor.h)
_MEMORY_UNIT = "Unified Memory Controller"
# A sentence of the AMD decoder that no status follows.
_SENTENCES = {
    "System Fatal error": Severity.CRITICAL, "Deferred error": Severity.MAJOR, "Corrected error": Severity.WARNING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One machine check. `about` is "memory" or "cpu"."""

    line: Line
    severity: Severity
    about: str = "cpu"
    unit: str = ""
    fru: str = ""
    fault: str = ""  # where it is not what `severity` and `about` make it


def events(lines: Sequence[Line], about: str) -> Iterator[Event]:
    """What the machine checks among the lines say of "memory", or of the "cpu"."""
    for check in machine_checks(lines):
        if check.about == about:
            yield _event(check)


def machine_checks(lines: Sequence[Line]) -> list[MachineCheck]:
    """In their order. A sentence, the status behind it and the unit's line are one."""
    found: list[MachineCheck] = []
    open_sentence = False  # the last one is a sentence whose status is still to come
    for line in lines:
        if line.rule == "mce.status" and line.groups["bank"] == _THERMAL:
            continue  # the line on the CPU's heat beside it says it
        if line.rule == "mce.status":
            found.append(_of_intel(line))
        elif line.rule == "mce.processor" and found and line.groups["vendor"] == _AMD:
            found[-1] = _of_amd(found[-1].line)
        elif line.rule == "mce.amd.sentence":
            found.append(MachineCheck(line, _SENTENCES.get(line.groups["sentence"], Severity.CRITICAL)))
        elif line.rule == "mce.amd.status":
            if open_sentence:
                found.pop()
            found.append(_of_amd(line))
        elif line.rule == "mce.amd.unit" and found:
            unit = line.groups["unit"]
            about = "memory" if unit == _MEMORY_UNIT else found[-1].about
            found[-1] = replace(found[-1], unit=unit, about=about)
        elif line.rule == "mce.amd.fru" and found:
            found[-1] = replace(found[-1], fru=line.groups["fru"].strip())
        if line.rule.startswith("mce.amd."):
            open_sentence = line.rule == "mce.amd.sentence"
    return found


def _of_intel(line: Line) -> MachineCheck:
    """An uncorrected error that the CPU did not signal (UCNA) is data that nobody has used yet.

    One that no bit of the bank's control word had enabled cannot have happened under Linux, which enables all: the
    firmware left it, and the kernel's own table gives it no severity.
    """
    status = int(line.groups["status"], 16)
    about = "memory" if status & 0xEF80 == 0x0080 else "cpu"  # 000F 0000 1MMM CCCC: a memory controller
    if not status & _UNCORRECTED:
        return MachineCheck(line, Severity.WARNING, about)
    if not status & _ENABLED and "word" not in line.groups:
        return MachineCheck(line, Severity.WARNING, "cpu", fault="previous_boot_error")
    used = status & (_CORRUPT | _SIGNALED) or "word" in line.groups
    return MachineCheck(line, Severity.CRITICAL if used else Severity.MAJOR, about)


def _of_amd(line: Line) -> MachineCheck:
    status = int(line.groups["status"], 16)
    if status & _UNCORRECTED:
        return MachineCheck(line, Severity.CRITICAL)
    return MachineCheck(line, Severity.MAJOR if status & _DEFERRED else Severity.WARNING)


def _event(check: MachineCheck) -> Event:
    corrected = check.severity <= Severity.WARNING
    kind = "mem" if check.about == "memory" else "cpu"
    component = (check.fru or "memory") if check.about == "memory" else check.line.component
    named = {name: check.line.groups[name] for name in ("cpu", "bank", "status") if name in check.line.groups}
    facts: dict[str, Scalar] = {**named, **({"unit": check.unit} if check.unit else {})}
    line, state = check.line, "corrected" if corrected else "event"
    fault = check.fault or (f"{kind}_corrected" if corrected else f"{kind}_uncorrected")
    return Event(
        line.rule, component[:80], line.text, line.at_s, line.at_s, 1, fault, check.severity, state, facts
    )  # fmt: skip
