"""A node with less memory than it should have: the firmware leaves out a DIMM that fails its training at boot.

Reads MemTotal of /proc/meminfo (proc_meminfo(5)): what the kernel may use, about 2 % less than what is installed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable

_FILE = "/proc/meminfo"
_TOTAL = re.compile(r"^MemTotal:\s+(\d{1,15}) kB$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Policy:
    """The tolerance has to be less than one DIMM of the machine, and more than what the kernel keeps for itself."""

    expected_gib: float = 0  # installed memory; 0: the check is skipped
    tolerance_pct: float = 2.8  # that may be missing; one of 32 DIMMs is 3.1 %
    severity: Severity = Severity.MAJOR  # of missing memory; the running job has what it asked for


def read(host: Host) -> int:
    """MemTotal in KiB. Raises Unavailable without the file, ValueError where it has no such line."""
    if not host.exists(_FILE):
        raise Unavailable(f"no {_FILE}")
    found = _TOTAL.search(host.text(_FILE))
    if not found:
        raise ValueError(f'{_FILE}: expected a line "MemTotal: NUMBER kB", found none')
    return int(found[1])


def judge(now: int, before: int | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where neither profile nor settings say how much memory there should be."""
    if not policy.expected_gib:
        raise Unavailable("expected_gib is not set")
    found_gib = now / (1 << 20)
    if found_gib < policy.expected_gib * (1 - policy.tolerance_pct / 100):
        evidence = {"found_gib": round(found_gib, 1), "expected_gib": policy.expected_gib}
        yield Finding("memory", "mem_missing", policy.severity, evidence)


CHECK = Check(
    name="mem_size",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("mem_missing",),
    every_s=3600,
    in_prolog=True,
)
