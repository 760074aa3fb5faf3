"""InfiniBand and RoCE ports that are down, slow, narrow, flapping, or that wait for a subnet manager.

Reads /sys/class/infiniband/HCA/ports/PORT (Documentation/ABI/stable/sysfs-class-infiniband), without virtual functions.
On Ethernet the InfiniBand counters stay 0, so there the netdev's carrier_down_count shows lost links.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.ib_port import SATURATED, Port, read_ports
from nodetriage.checks.rules.ports.history import flaps_of, next_state
from nodetriage.checks.rules.ports.roles import Role, assign, missing

_OTHERS = Role(must_be_up=False)
_ETHERNET = Role(must_be_up=False, down=Severity.MAJOR)


@dataclass(frozen=True, slots=True)
class Policy:
    """What each port is for."""

    roles: Mapping[str, Role] = field(default_factory=dict)  # by a name of your choice
    others: Role = _OTHERS  # for InfiniBand ports that no role claims
    ethernet: Role = _ETHERNET  # for Ethernet ports that no role claims
    init_grace_s: float = 180.0  # how long a port may wait for its subnet manager
    flap_window_s: float = 10_800.0  # in which lost links are counted
    serious_flaps: int = 3  # from so many in the window on they are major instead of a warning
    full_since_boot: bool = False  # report counters too that were full in the first run, often from one bad day


def read(host: Host) -> tuple[Port, ...]:
    return read_ports(host)


def judge(now: tuple[Port, ...], before: tuple[Port, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where there is no port and no role expects one."""
    ports = next_state(before, now)
    if not any(port.exists for port in ports) and not any(role.ports for role in policy.roles.values()):
        raise Unavailable("no InfiniBand or RoCE port in /sys/class/infiniband")
    old = {port.name: port for port in before or ()}
    claimed = assign(ports, policy.roles)
    for port in ports:
        flaps = flaps_of(old.get(port.name), port)
        if not port.exists:
            continue
        if (name := claimed.get(port.name)) is not None:
            yield from _judge_port(port, flaps, policy.roles[name], policy)
        elif port.link_layer != "Ethernet":
            yield from _judge_port(port, flaps, policy.others, policy)
        elif port.pci and port.wanted_up and not port.bond:  # software has no link; eth_link judges members of bonds
            yield from _judge_port(port, flaps, policy.ethernet, policy)
    for name, role in policy.roles.items():
        yield from missing(name, role, ports, claimed)


def _judge_port(port: Port, flaps: int, role: Role, policy: Policy) -> Iterator[Finding]:
    state: dict[str, Scalar] = {
        "state": port.state,
        "phys_state": port.phys_state,
        "pci": port.pci,
        "link_layer": port.link_layer,
    }
    if port.error:
        yield Finding(port.name, "ib_port_unreadable", Severity.MAJOR, {"error": port.error, "pci": port.pci})
    elif port.waiting_since_s is not None:
        waited_s = port.at_s - port.waiting_since_s
        if waited_s >= policy.init_grace_s:
            waited = {"waited_s": round(waited_s), "fabric_wide": True}
            yield Finding(port.name, "ib_no_subnet_manager", Severity.WARNING, {**state, **waited})
    elif port.state != "ACTIVE":
        if role.must_be_up or port.was_up:
            yield Finding(port.name, "ib_link_down", role.down, state)
    else:
        yield from _judge_speed(port, role)
    if flaps:
        recent = sum(port.at_s - at_s <= policy.flap_window_s for at_s in port.flaps_at_s)
        severity = Severity.MAJOR if recent >= policy.serious_flaps else Severity.WARNING
        yield Finding(port.name, "ib_link_flapping", severity, {"flaps": flaps, "in_window": recent, "pci": port.pci})
    full = port.link_layer != "Ethernet" and port.downed == SATURATED
    if full and (policy.full_since_boot or not port.blind_at_first):
        evidence: dict[str, Scalar] = {"counter": "link_downed", "value": SATURATED}
        yield Finding(port.name, "ib_counter_saturated", Severity.WARNING, evidence)


def _judge_speed(port: Port, role: Role) -> Iterator[Finding]:
    found: dict[str, Scalar] = {"rate_gbps": port.rate_gbps, "width": port.width, "speed": port.speed, "pci": port.pci}
    below = port.rate_gbps < role.rate_gbps
    if 0 < port.width < role.width and (below or not role.rate_gbps):
        # 4X HDR and, on a split cable, 2X NDR both give 200 Gb/s: fewer lanes count only with a lower rate.
        yield Finding(port.name, "ib_link_narrow", role.slow, {**found, "expected_width": role.width})
    elif below:
        yield Finding(port.name, "ib_link_slow", role.slow, {**found, "expected_gbps": role.rate_gbps})


CHECK = Check(
    name="ib_link",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "ib_port_missing", "ib_port_unreadable", "ib_link_down", "ib_no_subnet_manager", "ib_link_slow",
        "ib_link_narrow", "ib_link_flapping", "ib_counter_saturated",
    ),
    worker="fabric",
    every_s=60,
    next_state=next_state,
    wakes_on=("udev:infiniband", "links"),
    again_s=10,
    in_prolog=True,
)  # fmt: skip
