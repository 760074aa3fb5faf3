"""PCIe errors from their lines: the firmware's sections, AER, DPC and IOMMUs, with what hangs below a port.

A corrected error alone is no fault: `STORM` of them in one look on one device are a warning. Where the kernel counts
them itself, pcie_aer judges their rate.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.rules.kernel_log import Event, Line, each_line
from nodetriage.checks.rules.reports import cper

STORM = 20  # corrected errors of one device in one look


def join(lines: Sequence[Line], rules: KernelRules) -> Iterator[Event]:
    """What the lines say of each device."""
    found = [*cper.events(lines, ("pcie",), rules), *map(_addressed, each_line(lines, rules))]
    corrected = Counter(event.component for event in found if rules[event.rule].fault == "pcie_correctable")
    for event in found:
        if rules[event.rule].fault == "pcie_correctable" and corrected[event.component] >= STORM:
            event = replace(event, severity=Severity.WARNING)
        yield event


def _addressed(event: Event) -> Event:
    """The device by its PCI address where the line gives only the requester's number: bus, device and function."""
    number = event.facts.get("id")
    if not isinstance(number, str):
        return event
    value = int(number, 16)
    domain = event.component.partition(":")[0] if event.component.count(":") == 2 else "0000"
    return replace(event, component=f"{domain}:{value >> 8:02x}:{value >> 3 & 31:02x}.{value & 7}")
