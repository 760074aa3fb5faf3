"""Which GPUs NVML must not be asked about: after Xid 79, 119 or 120 a call about them may never return."""

from collections.abc import Iterable
from typing import Protocol

from nodetriage.agent.core.verdict import Verdict

CHECK = "gpu_xid"  # finds these faults in the kernel log, without touching the device
FAULTS = frozenset({"gpu_off_bus", "gpu_gsp_timeout"})


class Named(Protocol):
    """A finding, new or open."""

    @property
    def component(self) -> str: ...
    @property
    def fault(self) -> str: ...


def addresses(findings: Iterable[Named]) -> tuple[str, ...]:
    """The PCI addresses to avoid, sorted. A fault whose kernel line named no GPU gives none."""
    return tuple(sorted({f.component for f in findings if f.fault in FAULTS and ":" in f.component}))


def of(verdict: Verdict) -> tuple[str, ...]:
    """The node's present addresses to avoid: until an event or an operator clears the fault, or the next boot."""
    check = verdict.checks.get(CHECK)
    return addresses(check.open) if check else ()
