"""What a check says of the machine: how its run ended, and which faults it found."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetriage.checks.model.confidence import Confidence
from nodetriage.checks.model.severity import Severity

Scalar = str | int | float | bool


class Outcome(enum.StrEnum):
    """What became of one run of a check. Only OK says that the machine was looked at and is well."""

    OK = "ok"
    FINDINGS = "findings"
    SKIPPED = "skipped"  # there is nothing of the kind here
    BROKEN = "broken"  # the check could not make sense of what it read
    HUNG = "hung"  # it did not answer in its time


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
