"""PCIe devices as the kernel logs them: errors, ports that cut them off, cards that left, IOMMU faults.

Source: the kernel log, by the tables rules/kernel/pcie.py, pci_slots.py, iommu.py and apei.py (where the firmware
handles PCIe errors, the kernel's counters stay 0, and its reports are all there is). What a port says is the device's
below it, where that is one; evidence `below` names all that jobs use behind it.
"""

from collections.abc import Iterator
from dataclasses import replace

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.readers.pci import ADDRESS, PciPart, pci_parts
from nodetriage.checks.rules.kernel import apei, iommu, pci_slots, pcie
from nodetriage.checks.rules.kernel_log import Event, KernelLogPolicy, Log, judged, pci_addresses, read_log, remembered
from nodetriage.checks.rules.reports.pcie import join

RULES = KernelRules((*pcie.RULES.rules, *pci_slots.RULES.rules, *iommu.RULES.rules, *apei.LINES))


def read(host: Host) -> Log:
    log = read_log(host, RULES, join, pci_addresses)
    if not log.events:
        return log
    parts = pci_parts(host)
    ports = {name for part in parts for name in part.folder.split("/")}
    known = None if log.devices is None else tuple(sorted({*log.devices, *filter(ADDRESS.fullmatch, ports)}))
    return replace(log, events=tuple(_below(event, parts) for event in log.events), devices=known)


def _below(event: Event, parts: tuple[PciPart, ...]) -> Event:
    """The event of a port with what is below it; where that is one card, the event is the card's, as in pcie_aer."""
    below = [part.address for part in parts if f"/{event.component}/" in part.folder]
    if not below:
        return event
    facts = {**event.facts, "seen_by": event.component, "below": " ".join(below)[:200]}
    cards = {address.rpartition(".")[0] for address in below}
    return replace(event, component=below[0] if len(cards) == 1 else event.component, facts=facts)


def judge(now: Log, before: Log | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now, before, RULES, policy)


CHECK = Check(
    name="pcie_errors",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=(
        "pcie_fatal", "pcie_nonfatal", "pcie_correctable", "pcie_unreachable", "pcie_contained", "pcie_not_recovered",
        "pcie_recovered", "pcie_card_lost", "pcie_degraded", "power_fault", "iommu_fault", "iommu_error",
        "previous_boot_error", "kernel_line_unknown_device",
    ),
    next_state=remembered,
    kernel_pattern=RULES,
)  # fmt: skip
