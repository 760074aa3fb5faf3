"""Which GPUs NVML must not be asked about: after Xid 79, 119 or 120 each call about them may never return."""

from collections.abc import Iterable
from typing import Protocol

from nodetriage.agent.core.verdict import Verdict

CHECK = "gpu_xid"  # learns of them without touching the device
FAULTS = frozenset({"gpu_off_bus", "gpu_gsp_timeout"})


class Known(Protocol):
    """A finding, or one that is held."""

    @property
    def component(self) -> str: ...
    @property
    def fault(self) -> str: ...


def addresses(known: Iterable[Known]) -> tuple[str, ...]:
    """PCI addresses, in order. A fault whose line named no GPU keeps none apart."""
    return tuple(sorted({k.component for k in known if k.fault in FAULTS and ":" in k.component}))


def held(verdict: Verdict) -> tuple[str, ...]:
    """Those of the node as it stands: they are asked again when the fault is taken back, cleared or after a boot."""
    check = verdict.checks.get(CHECK)
    return addresses(check.held) if check else ()
