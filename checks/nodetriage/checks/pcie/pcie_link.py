"""PCIe links that lost lanes, or that run slower than both of their ends support.

Reads current_ and max_link_width and _speed of GPUs, NVSwitches, network adapters and NVMe disks and of the port above
each (Documentation/ABI/testing/sysfs-bus-pci). An idle GPU lowers the speed of its link to save power, so
gpu_link_speed checks the speed of GPUs while they work. An idle GPU keeps its lanes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.pci import FOLDER, pci_parts
from nodetriage.checks.readers.pcie_ends import Link, least, read_link


@dataclass(frozen=True, slots=True)
class Expected:
    """What a link should have where its two ends support more. 0: what the ends support."""

    width: int = 0  # lanes
    speed_gts: float = 0  # of one lane


@dataclass(frozen=True, slots=True)
class Policy:
    """An adapter or disk may be in a slot with fewer lanes than its port reports, so it is less grave than a GPU."""

    expected: Mapping[str, Expected] = field(default_factory=dict)  # by kind (gpu, nvswitch, nic, nvme) or PCI address
    slow_runs: int = 3  # runs in a row that must see a link slow
    narrow: Severity = (
        Severity.CRITICAL
    )  # of a GPU or NVSwitch, or where `expected` is set or the link was wider before
    narrow_by_slot: Severity = Severity.MAJOR  # of any other link with fewer lanes than its ends support


def read(host: Host) -> tuple[Link, ...]:
    """Raises Unavailable where no such device has a link in sysfs, as in most virtual machines."""
    links = tuple(read_link(host, component) for component in pci_parts(host))
    if not any(link.error or link.most_width for link in links):
        raise Unavailable(f"no GPU, NVSwitch, network adapter or NVMe disk with a PCIe link in {FOLDER}")
    return links


def next_state(before: tuple[Link, ...] | None, now: tuple[Link, ...]) -> tuple[Link, ...]:
    """The newest reading, with how many runs in a row saw each link slow, and the most lanes that it had."""
    old = {link.address: link for link in before or ()}
    return tuple(_since(old.get(link.address), link) for link in now)


def _since(old: Link | None, link: Link) -> Link:
    slow = 0 < link.speed_gts < link.most_speed_gts
    slow_runs, widest = (old.slow_runs, old.widest) if old else (0, 0)
    return replace(link, slow_runs=slow_runs + 1 if slow else 0, widest=max(link.width, widest))


def judge(now: tuple[Link, ...], before: tuple[Link, ...] | None, policy: Policy) -> Iterator[Finding]:
    for link in next_state(before, now):
        expected = _expected(link, policy)
        width = least(link.most_width, expected.width)
        speed_gts = least(link.most_speed_gts, expected.speed_gts)
        facts: dict[str, Scalar] = {
            "kind": link.kind,
            "port": link.port,
            "width": link.width,
            "speed_gts": link.speed_gts,
        }
        if link.error:
            yield Finding(link.address, "pcie_unreadable", Severity.MAJOR, {"error": link.error, "kind": link.kind})
        elif link.most_width and not link.width:
            yield Finding(link.address, "pcie_unreadable", Severity.MAJOR, {**facts, "error": "the link is not up"})
        elif link.width < width:
            sure = link.kind in ("gpu", "nvswitch") or expected.width or link.widest > link.width
            severity = policy.narrow if sure else policy.narrow_by_slot
            yield Finding(link.address, "pcie_link_narrow", severity, {**facts, "expected_width": int(width)})
        elif link.kind != "gpu" and link.speed_gts < speed_gts and link.slow_runs >= policy.slow_runs:
            yield Finding(link.address, "pcie_link_slow", Severity.MAJOR, {**facts, "expected_gts": speed_gts})


def _expected(link: Link, policy: Policy) -> Expected:
    by_address = (e for name, e in policy.expected.items() if ":" in name and fnmatchcase(link.address, name.lower()))
    return next(by_address, policy.expected.get(link.kind, Expected()))


CHECK = Check(
    name="pcie_link",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("pcie_link_narrow", "pcie_link_slow", "pcie_unreadable"),
    next_state=next_state,
    wakes_on=("udev:pci",),
    in_prolog=True,
)
