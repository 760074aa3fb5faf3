"""Machine checks and firmware-reported hardware errors of CPUs and memory, as the kernel logs them.

Source: the kernel log: arch/x86/kernel/cpu/mce, drivers/acpi/apei/ghes.c, drivers/edac, mm/memory-failure.c. Bit 61 of
a machine check's status says that the error was not corrected (Intel SDM volume 3, IA32_MCi_STATUS).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Severity
from nodetriage.checks.rules.kernel_lines import Event, events, findings, nothing, pattern, rule

_STATUS = r"CPU (\d+): Machine Check(?: Exception)?: [0-9a-f]+ Bank \d+: ([0-9a-f]{16})"
_UNCORRECTED = 1 << 61
RULES = (
    rule("status", _STATUS, r"cpu\1/\2"),
    rule("mem_uncorrected", r"EDAC \S+: \d+ UE .*? on (\S{1,60})", r"\1"),
    rule(
        "mem_uncorrected", r"^Memory failure: 0x[0-9a-f]+: |Uncorrected hardware memory error in user-access", "memory"
    ),
    rule("uncorrected", r"\[Hardware Error\]: event severity: (?:fatal|recoverable)", "firmware"),
    rule("corrected", r"\[Hardware Error\]: event severity: corrected", "firmware"),
    rule("uncorrected", r"\[Hardware Error\]: (?:Uncorrected|Deferred)(?:, \w+ \w+)? error", "cpu"),
    rule("corrected", r"\[Hardware Error\]: (?:Corrected error|Machine check events logged)", "cpu"),
    rule("throttled", r"CPU\d+: (?:Core|Package) temperature(?:/speed)? (?:is )?above threshold", "cpu"),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What each is worth."""

    uncorrected: Severity = Severity.CRITICAL
    mem_uncorrected: Severity = Severity.CRITICAL
    corrected: Severity = Severity.WARNING
    throttled: Severity = Severity.WARNING


def read(host: Host) -> tuple[Event, ...]:
    return tuple(_decoded(event) for event in events(host.kernel_log(), RULES))


def _decoded(event: Event) -> Event:
    """A machine check's status says whether it was corrected."""
    if event.kind != "status":
        return event
    component, _, status = event.component.partition("/")
    return replace(event, component=component, kind="uncorrected" if int(status, 16) & _UNCORRECTED else "corrected")


def judge(now: tuple[Event, ...], before: tuple[Event, ...] | None, policy: Policy) -> Iterator[Finding]:
    worth = {
        "uncorrected": ("cpu_uncorrected", policy.uncorrected),
        "mem_uncorrected": ("mem_uncorrected", policy.mem_uncorrected),
        "corrected": ("cpu_corrected", policy.corrected),
        "throttled": ("cpu_throttled", policy.throttled),
    }
    merged: dict[tuple[str, str], Event] = {}  # several statuses of one CPU
    for event in now:
        known = merged.get((event.kind, event.component), replace(event, lines=0))
        merged[event.kind, event.component] = replace(known, lines=known.lines + event.lines)
    yield from findings(merged.values(), worth)


CHECK = Check(
    name="cpu_mce",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("cpu_uncorrected", "mem_uncorrected", "cpu_corrected", "cpu_throttled"),
    next_state=nothing,
    kernel_pattern=pattern(RULES),
)
