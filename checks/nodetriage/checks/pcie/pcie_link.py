"""PCIe links that lost lanes, that run slower than both of their ends support, or whose device is off the bus.

Reads current_ and max_link_width and _speed (Documentation/ABI/testing/sysfs-bus-pci) of each link between a GPU,
NVSwitch, network adapter or NVMe disk and its root complex. An idle GPU lowers the speed of its link to save power, so
gpu_link_speed checks the speed of GPUs while they work. An idle GPU keeps its lanes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.pci import FOLDER, behind, hops, pci_parts
from nodetriage.checks.readers.pcie.ends import Link, least, read_link


@dataclass(frozen=True, slots=True)
class Expected:
    """What a link should have where its two ends support more. 0: what the ends support."""

    width: int = 0  # lanes
    speed_gts: float = 0  # of one lane


@dataclass(frozen=True, slots=True)
class Policy:
    """An adapter, disk or switch may be in a slot with fewer lanes than its port reports: less grave than a GPU.

    A BIOS or a retimer may hold a slot at a lower speed since boot, so that alone is a warning.
    """

    expected: Mapping[str, Expected] = field(default_factory=dict)  # by kind (gpu, nic, switch, ...) or PCI address
    slow_runs: int = 3  # runs in a row that must see a link slow
    narrow: Severity = (
        Severity.CRITICAL
    )  # of a GPU or NVSwitch, or where `expected` is set or the link was wider before
    narrow_by_slot: Severity = Severity.MAJOR  # of any other link with fewer lanes than its ends support
    slow: Severity = Severity.MAJOR  # of a link that was faster in this boot, or where `expected` sets its speed
    slow_by_slot: Severity = Severity.WARNING  # of any other link that is slower than its ends support
    off_bus: Severity = Severity.CRITICAL  # of a device that does not answer on the bus


def read(host: Host) -> tuple[Link, ...]:
    """Raises Unavailable where no such device has a link in sysfs, as in most virtual machines."""
    links = tuple(read_link(host, hop) for hop in hops(pci_parts(host)))
    if not any(link.error or link.most_width or link.silent for link in links):
        raise Unavailable(f"no GPU, NVSwitch, network adapter or NVMe disk with a PCIe link in {FOLDER}")
    return links


def next_state(before: tuple[Link, ...] | None, now: tuple[Link, ...]) -> tuple[Link, ...]:
    """The newest reading, with how many runs in a row saw each link slow, and the most that it had in this boot."""
    old = {link.address: link for link in before or ()}
    return tuple(_since(old.get(link.address), link) for link in now)


def _since(old: Link | None, link: Link) -> Link:
    slow = 0 < link.speed_gts < link.most_speed_gts
    slow_runs, widest, fastest_gts = (old.slow_runs, old.widest, old.fastest_gts) if old else (0, 0, 0.0)
    return replace(
        link,
        slow_runs=slow_runs + 1 if slow else 0,
        widest=max(link.width, widest),
        fastest_gts=max(link.speed_gts, fastest_gts),
    )


def judge(now: tuple[Link, ...], before: tuple[Link, ...] | None, policy: Policy) -> Iterator[Finding]:
    """A switch that is off the bus stands for all devices behind it."""
    links = next_state(before, now)
    lost: list[Link] = []
    for link in sorted(links, key=lambda each: -len(each.behind)):
        if link.silent and not any(set(link.behind) <= set(above.behind) for above in lost):
            lost.append(link)
    for link in links:
        facts: dict[str, Scalar] = {"kind": link.kind, "port": link.port, **behind(link.address, link.behind)}
        if link.error:
            yield Finding(link.address, "pcie_unreadable", Severity.MAJOR, {**facts, "error": link.error})
        elif link in lost:
            yield Finding(link.address, "pcie_off_bus", policy.off_bus, {**facts, "reason": link.silent})
        elif link.most_width and not link.silent:
            yield from _judge_link(link, {**facts, "width": link.width, "speed_gts": link.speed_gts}, policy)


def _judge_link(link: Link, facts: dict[str, Scalar], policy: Policy) -> Iterator[Finding]:
    expected = _expected(link, policy)
    width = least(link.most_width, expected.width)
    speed_gts = least(link.most_speed_gts, expected.speed_gts)
    if not link.width and link.widest:
        yield Finding(link.address, "pcie_off_bus", policy.off_bus, {**facts, "reason": "it has no link any more"})
    elif not link.width:
        yield Finding(link.address, "pcie_unreadable", Severity.MAJOR, {**facts, "error": "the link is not up"})
    elif link.width < width:
        sure = link.kind in ("gpu", "nvswitch") or expected.width > 0 or link.widest > link.width
        severity = policy.narrow if sure else policy.narrow_by_slot
        yield Finding(link.address, "pcie_link_narrow", severity, {**facts, "expected_width": int(width)})
    elif link.kind != "gpu" and link.speed_gts < speed_gts and link.slow_runs >= policy.slow_runs:
        since_boot = link.fastest_gts <= link.speed_gts
        severity = policy.slow_by_slot if since_boot and not expected.speed_gts else policy.slow
        facts = {**facts, "expected_gts": speed_gts, "since_boot": since_boot}
        yield Finding(link.address, "pcie_link_slow", severity, facts)


def _expected(link: Link, policy: Policy) -> Expected:
    by_address = (e for name, e in policy.expected.items() if ":" in name and fnmatchcase(link.address, name.lower()))
    return next(by_address, policy.expected.get(link.kind, Expected()))


CHECK = Check(
    name="pcie_link",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("pcie_off_bus", "pcie_link_narrow", "pcie_link_slow", "pcie_unreadable"),
    next_state=next_state,
    wakes_on=("udev:pci",),
    in_prolog=True,
)
