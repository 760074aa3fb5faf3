"""Memory errors as the kernel logs them: EDAC, pages taken away, machine checks and firmware reports of memory.

Source: the kernel log, by the tables rules/kernel/memory.py, cpu.py and apei.py. The counters of EDAC
(/sys/devices/system/edac/mc) are the second witness of an uncorrected error. A page on a NUMA node without CPUs is a
GPU's, as the driver of a Grace machine takes them away: what the GPU itself says of its memory decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Confidence, Finding, Host, Severity
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.readers.edac import node_of_page, read_dimms
from nodetriage.checks.rules.kernel import apei, cpu, memory
from nodetriage.checks.rules.kernel_log import Event, KernelLogPolicy, Log, judged, read_log, remembered
from nodetriage.checks.rules.reports.memory import join

RULES = KernelRules((*memory.RULES.rules, *cpu.LINES, *apei.LINES))


@dataclass(frozen=True, slots=True)
class Reading:
    """`uncorrected` is what EDAC counted since boot, None where it has no counters or nothing was asked."""

    log: Log
    uncorrected: int | None = None


def read(host: Host) -> Reading:
    log = read_log(host, RULES, join)
    if not log.events:
        return Reading(log)
    dimms = [dimm for dimm in read_dimms(host) if not dimm.error]
    events = tuple(_placed(host, event) for event in log.events)
    return Reading(replace(log, events=events), sum(d.uncorrected for d in dimms) if dimms else None)


def _placed(host: Host, event: Event) -> Event:
    """The event with the NUMA node of its page."""
    pfn = event.facts.get("pfn")
    node = node_of_page(host, int(pfn, 16)) if isinstance(pfn, str) else None
    if node is None:
        return event
    event = replace(event, facts={**event.facts, "numa_node": node.number, "has_cpu": node.has_cpu})
    if node.has_cpu:
        return event
    severity = min(RULES[event.rule].severity if event.severity is None else event.severity, Severity.WARNING)
    return replace(event, component=f"memory node{node.number}", fault="mem_page_retired", severity=severity)


def judge(now: Reading, before: Reading | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    for finding in judged(now.log, before.log if before else None, RULES, policy):
        if finding.fault != "mem_uncorrected" or now.uncorrected is None:
            yield finding
            continue
        # The counter of EDAC is read from the memory controller: a user cannot make it agree with a line.
        confidence = Confidence.WITNESSED if now.uncorrected else Confidence.LINE
        evidence = {**finding.evidence, "edac_uncorrected": now.uncorrected}
        yield replace(finding, evidence=evidence, confidence=confidence)


def next_state(before: Reading | None, now: Reading) -> Reading:
    return Reading(remembered(before.log if before else None, now.log))


CHECK = Check(
    name="mem_errors",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=(
        "mem_uncorrected", "mem_corrected", "mem_page_retired", "mem_ecc_off", "cpu_uncorrected", "previous_boot_error",
    ),
    next_state=next_state,
    kernel_pattern=RULES,
)  # fmt: skip
