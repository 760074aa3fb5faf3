"""PCIe errors that the kernel counted, of each device and of the port above it: often only that end of a link logs.

Reads aer_dev_correctable, _nonfatal and _fatal (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats): one
"NAME COUNT" a line and a TOTAL_ line, which need not be their sum. The files are absent where the firmware handles
PCIe errors itself. Only the rise between two runs counts; a counter that fell was reset, and says nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.aer_counters import Counts, read_counts
from nodetriage.checks.readers.pci import FOLDER, pci_parts
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
    """Raises Unavailable where the kernel counts no PCIe errors."""
    at_s, found, ports = host.boottime_s(), [], set()
    for component in pci_parts(host):
        found.append(read_counts(host, component.folder, component, at_s))
        if (
            component.port and component.port not in ports
        ):  # the functions of one card share its port: the first stands for it
            ports.add(component.port)
            found.append(read_counts(host, component.port_folder, component, at_s))
    if not any(c.errors or c.error for c in found):
        raise Unavailable(f"no aer_dev_* files in {FOLDER}: no such device, or the firmware handles PCIe errors itself")
    return tuple(found)


def judge(now: tuple[Counts, ...], before: tuple[Counts, ...] | None, policy: Policy) -> Iterator[Finding]:
    """One finding for each device and class of error, from the end of its link that counted more."""
    old = {c.address: c for c in before or ()}
    found: dict[tuple[str, str], tuple[int, dict[str, Scalar]]] = {}
    for counts in now:
        if counts.error:
            yield Finding(
                counts.component, "pcie_unreadable", Severity.MAJOR, {"error": counts.error, "kind": counts.kind}
            )
        earlier = old.get(counts.address)
        for name, errors in counts.errors.items() if earlier else ():
            assert earlier is not None
            if name in earlier.errors and (rise := _rise(earlier.errors[name], errors)) > 0:
                facts = _evidence(earlier, counts, name, rise)
                found[counts.component, name] = max(
                    found.get((counts.component, name), (0, {})), (rise, facts), key=lambda f: f[0]
                )
    for (component, name), (rise, facts) in found.items():
        if name != "correctable" or _storm(rise, float(facts["per_h"]), policy):
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


def _evidence(old: Counts, new: Counts, name: str, rise: int) -> dict[str, Scalar]:
    was, now = old.errors[name], new.errors[name]
    names = [n for n in now if now[n] > was.get(n, 0) and not n.startswith(_TOTAL)]
    waited_s = new.at_s - old.at_s
    per_h = round(per_hour(rise, waited_s), 1) if waited_s > 0 else float(rise)
    return {
        "errors": rise, "names": " ".join(names), "seen_by": new.address, "kind": new.kind, "over_s": round(waited_s),
        "per_h": per_h,
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
