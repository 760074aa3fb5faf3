"""PCIe errors that the kernel counted, on both ends of each link between a device and its root complex.

Reads aer_dev_correctable, _nonfatal and _fatal (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats): one
"NAME COUNT" a line and a TOTAL_ line, which need not be their sum. The files are absent where the firmware handles
PCIe errors itself. Only the rise between two runs counts; a counter that fell was reset, and says nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.pci import FOLDER, behind, hops, pci_parts
from nodetriage.checks.readers.pcie.aer import Counts, read_counts
from nodetriage.checks.rules.counters import per_hour

_TOTAL = "TOTAL_"


@dataclass(frozen=True, slots=True)
class Policy:
    """One uncorrected error is a fault. Corrected errors are one where they pass both limits."""

    fatal: Severity = Severity.CRITICAL  # of uncorrected errors after which the link is not reliable
    nonfatal: Severity = Severity.MAJOR  # of other uncorrected errors
    correctable: Severity = Severity.WARNING  # of too many corrected errors
    correctable_per_h: float = 100.0  # errors an hour between two runs
    correctable_at_least: int = 20  # errors between two runs, below which the rate is chance


def read(host: Host) -> tuple[Counts, ...]:
    """Both ends of each link. Raises Unavailable where the kernel counts no PCIe errors."""
    at_s = host.boottime_s()
    found: dict[str, Counts] = {}
    for hop in hops(pci_parts(host)):
        ends = (*hop.functions, hop.port_folder) if hop.port else hop.functions
        found |= {folder: read_counts(host, folder, hop, at_s) for folder in ends if folder not in found}
    if not any(c.errors or c.error for c in found.values()):
        raise Unavailable(f"no aer_dev_* files in {FOLDER}: no such device, or the firmware handles PCIe errors itself")
    return tuple(found.values())


def judge(now: tuple[Counts, ...], before: tuple[Counts, ...] | None, policy: Policy) -> Iterator[Finding]:
    """One finding for each link and class of error: the sum of both ends."""
    old = {c.address: c for c in before or ()}
    risen: dict[tuple[str, str], list[tuple[int, Counts, Counts]]] = {}
    for counts in now:
        if counts.error:
            yield Finding(
                counts.component, "pcie_unreadable", Severity.MAJOR, {"error": counts.error, "kind": counts.kind}
            )
        earlier = old.get(counts.address)
        for name, errors in counts.errors.items() if earlier else ():
            assert earlier is not None
            if name in earlier.errors and (rise := _rise(earlier.errors[name], errors)) > 0:
                risen.setdefault((counts.component, name), []).append((rise, earlier, counts))
    for (component, name), ends in risen.items():
        facts = _evidence(ends, name)
        if name != "correctable" or _storm(sum(rise for rise, _, _ in ends), float(facts["per_h"]), policy):
            yield Finding(component, f"pcie_{name}", getattr(policy, name), facts)


def _rise(old: Mapping[str, int], new: Mapping[str, int]) -> int:
    """How much the total rose, or the sum of the single counters where that rose more; 0 after a reset."""
    if any(new.get(name, 0) < count for name, count in old.items()):
        return 0
    rises = [(name, count - old.get(name, 0)) for name, count in new.items()]
    totals, named = ([r for n, r in rises if n.startswith(_TOTAL) is t] for t in (True, False))
    return max(max(totals, default=0), sum(named))


def _storm(rise: int, per_h: float, policy: Policy) -> bool:
    return rise >= policy.correctable_at_least and per_h >= policy.correctable_per_h


def _evidence(ends: list[tuple[int, Counts, Counts]], name: str) -> dict[str, Scalar]:
    """`seen_by` is the end that counted more; often only one end of a link logs."""
    _, old, new = max(ends, key=lambda end: end[0])
    errors, waited_s = sum(rise for rise, _, _ in ends), new.at_s - old.at_s
    names = {
        n
        for _, was, now in ends
        for n, count in now.errors[name].items()
        if count > was.errors[name].get(n, 0) and not n.startswith(_TOTAL)
    }
    per_h = round(per_hour(errors, waited_s), 1) if waited_s > 0 else float(errors)
    return {
        "errors": errors, "names": " ".join(sorted(names)), "seen_by": new.address, "kind": new.kind,
        "over_s": round(waited_s), "per_h": per_h, **behind(new.component, new.behind),
    }  # fmt: skip


CHECK = Check(
    name="pcie_aer",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("pcie_fatal", "pcie_nonfatal", "pcie_correctable", "pcie_unreadable"),
    # What the kernel does not log it counts all the same.
    kernel_wakes=r"[a-z][\w-]{0,30} [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: (?:AER|PCIe Bus Error): ",
)
