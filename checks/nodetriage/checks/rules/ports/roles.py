"""Which role of the settings each InfiniBand or RoCE port has, and which adapters a role lacks. Pure.

A kernel name (mlx5_0) depends on the order in which drivers find the adapters and on udev's rules, so a role claims by
PCI address first. A role that still lacks ports takes unclaimed ports that run at its rate: they have other names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodetriage.checks.model import Finding, Scalar, Severity
from nodetriage.checks.readers.ib_port import Port


@dataclass(frozen=True, slots=True)
class Role:
    """What some ports should be like. 0: any value is right."""

    pci: tuple[str, ...] = ()  # shell patterns of PCI addresses; they count before the names
    hcas: tuple[str, ...] = ()  # shell patterns of HCA names
    link_layer: str = ""  # InfiniBand or Ethernet; "": either
    ports: int = 0  # how many ports there should be
    rate_gbps: float = 0  # at least
    width: int = 0  # lanes, at least
    down: Severity = Severity.CRITICAL  # of a port that is down or missing
    slow: Severity = Severity.MAJOR  # of a port that is slow or narrow
    must_be_up: bool = True  # false: a port that was never up in this boot may stay down


def assign(ports: tuple[Port, ...], roles: Mapping[str, Role]) -> dict[str, str]:
    """The role of each port by the port's name, without ports that no role claims."""
    claimed: dict[str, str] = {}
    for port in ports:
        by_pci = (n for n, role in roles.items() if _fits(port, role) and _matches(port.pci, role.pci))
        by_name = (n for n, role in roles.items() if _fits(port, role) and _matches(port.hca, role.hcas))
        if (name := next(by_pci, None) or next(by_name, None)) is not None:
            claimed[port.name] = name
    for name, role in roles.items():
        if role.rate_gbps and (role.ports or not (role.pci or role.hcas)):
            short = role.ports - sum(of == name for of in claimed.values()) if role.ports else len(ports)
            fast = [p for p in ports if p.name not in claimed and _fits(p, role) and p.best_gbps >= role.rate_gbps]
            claimed |= {port.name: name for port in fast[: max(short, 0)]}
    return claimed


def missing(name: str, role: Role, ports: tuple[Port, ...], claimed: Mapping[str, str]) -> Iterator[Finding]:
    """The ports that a role lacks, by the PCI address of their adapters where that is known.

    `ports` has also those of earlier runs in this boot, and adapters on the bus whose driver made no port.
    """
    found = sum(claimed.get(port.name) == name for port in ports if port.exists)
    short = role.ports - found
    if short <= 0:
        return
    evidence: dict[str, Scalar] = {"role": name, "expected": role.ports, "found": found}
    there = {port.pci for port in ports if port.exists}
    idle = {port.pci: port for port in ports if port.only_adapter and port.pci not in there}
    known = [p.pci for p in ports if p.gone and p.pci and p.pci not in there and claimed.get(p.name) == name]
    named = [a.lower() for a in role.pci if not set(a) & set("*?[") and a.lower() not in there]
    likely = [a for a in idle if _matches(a, role.pci)]
    others = [] if role.pci else list(idle)
    absent = list(dict.fromkeys((*likely, *known, *named, *others)))[:short]
    for address in absent:
        adapter = idle.get(address)
        state: dict[str, Scalar] = {"on_bus": adapter is not None, "driver": adapter.driver if adapter else ""}
        set_aside = adapter is not None and adapter.driver == "vfio-pci"
        severity = min(role.down, Severity.WARNING) if set_aside else role.down
        yield Finding(address, "ib_port_missing", severity, {**evidence, **state})
    if len(absent) < short:
        yield Finding(f"ib/{name}", "ib_port_missing", role.down, evidence)


def _fits(port: Port, role: Role) -> bool:
    return not role.link_layer or port.link_layer.lower() == role.link_layer.lower()


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return bool(text) and any(fnmatchcase(text.lower(), pattern.lower()) for pattern in patterns)
