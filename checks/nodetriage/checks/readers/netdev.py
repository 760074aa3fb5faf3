"""Ethernet interfaces of adapters, and bonds.

/sys/class/net/NAME: type, flags, operstate, speed (Mb/s), carrier_down_count, master, bonding, phys_port_name
(Documentation/ABI/testing/sysfs-class-net, Documentation/networking/operstates.rst, bonding.rst, representors.rst).
"""

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.sysfs import REFUSED, error_line, optional_count, optional_text

_ETHERNET = "1"  # ARPHRD_ETHER; 32 is IP over InfiniBand
_FLAGS = re.compile(r"0x[0-9a-f]{1,8}")
_UP = 0x1  # IFF_UP: an administrator set it up
# Of a port's representor in switchdev mode, as phys_port_name and at the end of the name that udev makes of it.
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf\d+|sf\d+|hpf)$")


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface. `error` is set where its files could not be read. The last fields come from earlier runs."""

    name: str
    at_s: float  # CLOCK_BOOTTIME of the reading
    pci: str = ""  # "" for a bond, and for an interface on USB such as the BMC's
    wanted_up: bool = False
    carrier: bool = False
    speed_mbps: int = 0  # 0 where the driver does not know it
    bond: str = ""  # the bond or team of which it is a member
    is_bond: bool = False
    unused: str = ""  # why the bond does not use a member that has a link
    partner: str = ""  # MAC address of the switch at the other end of the bond (802.3ad)
    rdma: bool = False  # it also has RDMA, and ib_link checks it unless it is a member of a bond
    downs: int | None = None  # times the carrier was lost
    error: str = ""
    was_up: bool = False
    flaps_at_s: tuple[float, ...] = ()
    owed: int = 0  # lost links that no finding has reported yet


def read_interfaces(host: Host) -> tuple[Interface, ...]:
    """Physical functions and bonds, by name; without virtual functions, representors, bridges, tunnels and the like."""
    at_s = host.boottime_s()
    found = []
    for path in host.glob("/sys/class/net/*"):
        real = host.exists(path / "device") and not host.exists(path / "device/physfn")
        if (real and not is_representor(host, path)) or host.exists(path / "bonding"):
            found.append(_read(host, path, at_s))
    return tuple(interface for interface in found if interface is not None)


def _read(host: Host, path: PurePosixPath, at_s: float) -> Interface | None:
    """None for an interface that is not Ethernet."""
    interface = Interface(path.name, at_s, address_of(host, path), is_bond=host.exists(path / "bonding"))
    try:
        if optional_text(host, path / "type") != _ETHERNET:
            return None
        up = wanted_up(host, path)
        state = host.text(path / "operstate")  # `carrier` answers EINVAL where the interface is not set up
        return replace(
            interface,
            wanted_up=up,
            carrier=_is_up(state, path),
            speed_mbps=_speed(host, path),
            bond=(bond := bond_of(host, path)),
            unused=_unused(host, path, bond),
            partner=_partner(host, bond),
            rdma=host.exists(path / "device/infiniband"),
            downs=optional_count(host, path / "carrier_down_count"),
        )
    except (OSError, ValueError) as error:
        return replace(interface, error=error_line(error, path))


def wanted_up(host: Host, path: PurePosixPath) -> bool:
    """Whether an administrator set it up (IFF_UP). Raises OSError, ValueError."""
    flags = host.text(path / "flags")
    if not _FLAGS.fullmatch(flags):
        raise ValueError(f"{path / 'flags'}: expected a hexadecimal number, got {flags[:40]!r}")
    return bool(int(flags, 16) & _UP)


def _is_up(state: str, path: PurePosixPath) -> bool:
    known = ("up", "down", "dormant", "testing", "lowerlayerdown", "notpresent", "unknown")
    if state not in known:
        raise ValueError(f"{path / 'operstate'}: expected one of {', '.join(known)}, got {state[:40]!r}")
    return state in ("up", "unknown", "dormant")  # many drivers never set it


def _speed(host: Host, path: PurePosixPath) -> int:
    """In Mb/s; 0 where there is no link: the driver then gives -1 or EINVAL."""
    text = optional_text(host, path / "speed")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


def is_representor(host: Host, path: PurePosixPath) -> bool:
    """Whether the interface stands for a virtual function: it has the device of the physical port, and no link."""
    return _REPRESENTOR.search(optional_text(host, path / "phys_port_name") or path.name) is not None


def bond_of(host: Host, path: PurePosixPath) -> str:
    """The bond or team of which the interface is a member; "" for a port of a bridge. Raises OSError."""
    try:
        master = host.link(path / "master")
    except OSError as error:
        if error.errno in REFUSED:
            return ""
        raise
    net = PurePosixPath("/sys/class/net", master.name)
    if host.exists(net / "bonding"):
        return master.name
    return master.name if not host.exists(net / "bridge") and len(host.glob(f"{net}/lower_*")) > 1 else ""


def _unused(host: Host, path: PurePosixPath, bond: str) -> str:
    """Why a member carries nothing: its monitor (mii_status) says so, or LACP put it into another aggregator."""
    state = optional_text(host, path / "bonding_slave/mii_status")[:20] if bond else ""
    if state not in ("", "up"):
        return f"mii_status is {state}"
    own = optional_text(host, path / "bonding_slave/ad_aggregator_id")[:20] if bond else ""
    active = optional_text(host, f"/sys/class/net/{bond}/bonding/ad_aggregator")[:20] if own else ""
    return f"aggregator {own}, the bond uses {active}" if active and own != active else ""


def _partner(host: Host, bond: str) -> str:
    """ "" where the bond has no LACP partner (zeros), or only root may read it."""
    text = optional_text(host, f"/sys/class/net/{bond}/bonding/ad_partner_mac")[:20] if bond else ""
    return text if text.strip("0:") else ""
