"""Machine checks and firmware-reported hardware errors of CPUs and memory, as the kernel logs them.

Source: the kernel log: arch/x86/kernel/cpu/mce, drivers/acpi/apei/ghes.c, drivers/edac, mm/memory-failure.c. Bit 61 of
a machine check's status says that the error was not corrected (Intel SDM volume 3, IA32_MCi_STATUS).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Severity
from nodetriage.checks.rules.kernel_lines import Event, events, findings, nothing, pattern, rule

_UNCORRECTED = 1 << 61
_MCE = r"(?:mce: )?\[Hardware Error\]: "
_APEI = r"(?:\{\d{1,10}\})?\[Hardware Error\]: event severity: "
RULES = (
    rule(
        "status", _MCE + r"CPU (\d+): Machine Check(?: Exception)?: [0-9a-f]+ Bank \d+: ([0-9a-f]{16})", r"cpu\1/\2",
        "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 3: be00000000800400",
    ),
    rule(
        "mem_uncorrected", r"EDAC MC\d+: \d+ UE (?:[\w-]+ ){0,6}on ([\w#?-]{1,60}(?: memory)?)", r"\1",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2f1a7b)",
        "EDAC MC1: 1 UE on mc#1csrow#2channel#3 (csrow:2 channel:3 page:0x7d1a2c offset:0x1c0 grain:64)",
    ),
    rule(
        "mem_uncorrected",
        r"Memory failure: 0x[0-9a-f]{1,16}: |mce: Uncorrected hardware memory error in user-access",
        "memory",
        "Memory failure: 0x2fd2b5: recovery action for dirty LRU page: Recovered",
        "mce: Uncorrected hardware memory error in user-access at 3f80",
    ),
    rule("uncorrected", _APEI + "(?:fatal|recoverable)", "firmware", "{1}[Hardware Error]: event severity: fatal"),
    rule("corrected", _APEI + "corrected", "firmware", "{7}[Hardware Error]: event severity: corrected"),
    rule(
        "uncorrected", _MCE + r"(?:Uncorrected|Deferred)(?:, \w+ \w+)? error", "cpu",
        "[Hardware Error]: Uncorrected, software restartable error.",
        "[Hardware Error]: Deferred error, no action required.",
    ),
    rule(
        "corrected", _MCE + "(?:Corrected error|Machine check events logged)", "cpu",
        "[Hardware Error]: Corrected error, no action required.", "mce: [Hardware Error]: Machine check events logged",
    ),
    rule(
        "throttled", r"(?:mce: )?CPU\d+: (?:Core|Package) temperature(?:/speed)? (?:is )?above threshold", "cpu",
        "mce: CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 17)",
        "CPU3: Package temperature/speed above threshold, cpu clock throttled (total events = 1)",
    ),
)  # fmt: skip


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
