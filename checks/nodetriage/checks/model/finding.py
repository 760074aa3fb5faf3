"""What a check reports: how its run ended, and which faults it found."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetriage.checks.model.confidence import Confidence
from nodetriage.checks.model.severity import Severity

Scalar = str | int | float | bool


class Outcome(enum.StrEnum):
    """How one run of a check ended. Only OK says that the check read the machine and found no fault."""

    OK = "ok"
    FINDINGS = "findings"
    SKIPPED = "skipped"  # the machine has nothing for this check to read
    BROKEN = "broken"  # the check could not read or understand something
    HUNG = "hung"  # the check did not answer in time


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault seen on one part.

    `component` is a name that outlives a reboot (GPU UUID, PCI address, HCA/port, mount point, DIMM label), never an
    index. `fault` is a code of faults.toml. `evidence` holds measured values with units in their names, never prose.
    """

    component: str
    fault: str
    severity: Severity
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    confidence: Confidence = Confidence.STATE
