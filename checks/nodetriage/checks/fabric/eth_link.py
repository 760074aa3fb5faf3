"""Ethernet links that are down, slow or flapping, and bonds that lost a member.

Reads /sys/class/net (Documentation/ABI/testing/sysfs-class-net): physical functions on PCI, and bonds. A port that the
settings do not name and that was never up in this boot is unused, and no fault. ib_link checks ports with RDMA, unless
the settings name them here or they are members of a bond.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.netdev import Interface, read_interfaces
from nodetriage.checks.rules.counters import rise
from nodetriage.checks.rules.ports.history import FLAPS_KEPT, still_owed, to_report


@dataclass(frozen=True, slots=True)
class Expected:
    """Interfaces that should be up."""

    count: int = 1  # how many interfaces match the pattern
    speed_mbps: int = 0  # 0: any speed is right
    down: Severity = Severity.CRITICAL  # without a link, or missing
    slow: Severity = Severity.MAJOR  # slower than speed_mbps


@dataclass(frozen=True, slots=True)
class Policy:
    """An interface that `expected` does not name counts once it has been up."""

    expected: Mapping[str, Expected] = field(default_factory=dict)  # by pattern of interface names
    down: Severity = Severity.MAJOR  # an interface that `expected` does not name lost its link
    flap_window_s: float = 10_800.0  # in which lost links are counted
    serious_flaps: int = 3  # from so many in the window on they are major instead of a warning


def read(host: Host) -> tuple[Interface, ...]:
    return read_interfaces(host)


def next_state(before: tuple[Interface, ...] | None, now: tuple[Interface, ...]) -> tuple[Interface, ...]:
    """The newest reading, with whether each interface was ever up, and when it lost its carrier."""
    old = {interface.name: interface for interface in before or ()}
    return tuple(_since(old.get(interface.name), interface) for interface in now)


def _since(old: Interface | None, now: Interface) -> Interface:
    lost = _lost(old, now)
    flaps = (*(old.flaps_at_s if old else ()), *((now.at_s,) * min(lost, FLAPS_KEPT)))[-FLAPS_KEPT:]
    was_up = now.carrier or (old is not None and old.was_up)
    return replace(now, was_up=was_up, flaps_at_s=flaps, owed=still_owed(old.owed if old else 0, lost, now.carrier))


def _lost(old: Interface | None, now: Interface) -> int:
    """How often it lost its carrier since the last run; 0 where the counter was reset."""
    return rise(old.downs if old else None, now.downs)


def judge(now: tuple[Interface, ...], before: tuple[Interface, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where there is no Ethernet and none is expected."""
    if not now and not policy.expected:
        raise Unavailable("no Ethernet adapter in /sys/class/net")
    old = {interface.name: interface for interface in before or ()}
    there = dict.fromkeys(policy.expected, 0)
    for interface in next_state(before, now):
        pattern = next((p for p in policy.expected if fnmatchcase(interface.name, p)), None)
        if pattern is not None:
            there[pattern] += 1
        elif not (interface.bond or interface.is_bond) and (interface.rdma or not interface.pci):
            continue
        known = old.get(interface.name)
        flaps = to_report(known.owed if known else 0, _lost(known, interface), interface.carrier)
        yield from _judge_one(interface, flaps, policy.expected[pattern] if pattern is not None else None, policy)
    for pattern, expected in policy.expected.items():
        if there[pattern] < expected.count:
            evidence = {"expected": expected.count, "found": there[pattern]}
            yield Finding(f"net/{pattern}", "eth_missing", expected.down, evidence)


def _judge_one(interface: Interface, flaps: int, expected: Expected | None, policy: Policy) -> Iterator[Finding]:
    component = interface.name
    facts: dict[str, Scalar] = {"pci": interface.pci, "bond": interface.bond, "speed_mbps": interface.speed_mbps}
    facts |= {"partner": interface.partner} if interface.partner else {}
    if interface.error:
        yield Finding(component, "eth_unreadable", Severity.MAJOR, {"error": interface.error})
        return
    if not interface.carrier:
        used = interface.was_up or interface.bond  # a member of a bond is wanted
        if expected is not None:
            yield Finding(component, "eth_link_down", expected.down, {**facts, "wanted_up": interface.wanted_up})
        elif used and interface.wanted_up:  # not one that somebody took down on purpose
            severity = Severity.WARNING if interface.bond else policy.down
            yield Finding(component, "eth_link_down", severity, {**facts, "wanted_up": True})
    elif interface.unused:
        yield Finding(component, "eth_member_unused", Severity.WARNING, {**facts, "reason": interface.unused})
    elif expected is not None and 0 < interface.speed_mbps < expected.speed_mbps:
        yield Finding(component, "eth_link_slow", expected.slow, {**facts, "expected_mbps": expected.speed_mbps})
    if flaps:
        recent = sum(interface.at_s - at_s <= policy.flap_window_s for at_s in interface.flaps_at_s)
        severity = Severity.MAJOR if recent >= policy.serious_flaps else Severity.WARNING
        yield Finding(component, "eth_link_flapping", severity, {**facts, "flaps": flaps, "in_window": recent})


CHECK = Check(
    name="eth_link",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "eth_missing", "eth_unreadable", "eth_link_down", "eth_member_unused", "eth_link_slow", "eth_link_flapping",
    ),
    worker="fabric",
    every_s=300,
    next_state=next_state,
    wakes_on=("udev:net", "links"),
    again_s=10,
)  # fmt: skip
