"""InfiniBand and RoCE ports that are down, slow, narrow, flapping, or that wait for a subnet manager.

Reads /sys/class/infiniband/HCA/ports/PORT (Documentation/ABI/stable/sysfs-class-infiniband), without virtual functions.
On Ethernet the InfiniBand counters stay 0, so there the netdev's carrier_down_count shows lost links.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.ib_port import SATURATED, Port, read_ports
from nodetriage.checks.rules.port_history import downs_since, next_state


@dataclass(frozen=True, slots=True)
class Role:
    """What the ports of some HCAs should be like. 0: any value is right."""

    hcas: tuple[str, ...] = ()  # shell patterns of HCA names
    ports: int = 0  # how many ports there should be
    rate_gbps: float = 0  # at least
    width: int = 0  # lanes, at least
    down: Severity = Severity.CRITICAL  # of a port that is down or missing
    slow: Severity = Severity.MAJOR  # of a port that is slow or narrow
    must_be_up: bool = True  # false: a port that was never up in this boot may stay down


@dataclass(frozen=True, slots=True)
class Policy:
    """What each port is for."""

    roles: Mapping[str, Role] = field(default_factory=dict)  # by a name of your choice
    others: Role = Role(must_be_up=False)  # for ports whose HCA no role names
    init_grace_s: float = 180.0  # how long a port may wait for its subnet manager
    flap_window_s: float = 10_800.0  # in which lost links are counted
    serious_flaps: int = 3  # from so many in the window on they are major instead of a warning
    full_since_boot: bool = False  # report counters too that were full in the first run, often from one bad day


def read(host: Host) -> tuple[Port, ...]:
    return read_ports(host)


def judge(now: tuple[Port, ...], before: tuple[Port, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where there is no port and no role expects one."""
    if not now and not any(role.ports for role in policy.roles.values()):
        raise Unavailable("no InfiniBand or RoCE port in /sys/class/infiniband")
    claimed = dict.fromkeys(policy.roles, 0)
    old = {port.name: port for port in before or ()}
    for port in next_state(before, now):
        name = next((n for n, r in policy.roles.items() if any(fnmatchcase(port.hca, p) for p in r.hcas)), None)
        if name is not None:
            claimed[name] += 1
        yield from _judge_port(
            port, downs_since(old.get(port.name), port), policy.roles.get(name or "", policy.others), policy
        )
    for name, role in policy.roles.items():
        if claimed[name] < role.ports:
            evidence: dict[str, Scalar] = {"role": name, "expected": role.ports, "found": claimed[name]}
            yield Finding(f"ib/{name}", "ib_port_missing", role.down, evidence)


def _judge_port(port: Port, downs: int, role: Role, policy: Policy) -> Iterator[Finding]:
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
        recent = sum(port.at_s - at_s <= policy.flap_window_s for at_s in port.flaps_at_s)
        if downs:
            severity = Severity.MAJOR if recent >= policy.serious_flaps else Severity.WARNING
            yield Finding(
                port.name, "ib_link_flapping", severity, {"flaps": downs, "in_window": recent, "pci": port.pci}
            )
    full = port.link_layer != "Ethernet" and port.downed == SATURATED
    if full and (policy.full_since_boot or not port.blind_at_first):
        yield Finding(
            port.name, "ib_counter_saturated", Severity.WARNING, {"counter": "link_downed", "value": SATURATED}
        )


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
    wakes_on=("udev:infiniband",),
    in_prolog=True,
)  # fmt: skip
