"""Ethernet interfaces of adapters, and bonds.

/sys/class/net/NAME: type, flags, operstate, speed (Mb/s), carrier_down_count, master, bonding
(Documentation/ABI/testing/sysfs-class-net, Documentation/networking/operstates.rst).
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


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface. `error` is set where its files could not be read. The last two fields come from earlier runs."""

    name: str
    at_s: float  # CLOCK_BOOTTIME of the reading
    pci: str = ""  # "" for a bond, and for an interface on USB such as the BMC's
    wanted_up: bool = False
    carrier: bool = False
    speed_mbps: int = 0  # 0 where the driver does not know it
    bond: str = ""  # of which it is a member
    is_bond: bool = False
    rdma: bool = False  # it also has RDMA, and ib_link checks it
    downs: int | None = None  # times the carrier was lost
    error: str = ""
    was_up: bool = False
    flaps_at_s: tuple[float, ...] = ()


def read_interfaces(host: Host) -> tuple[Interface, ...]:
    """Physical functions and bonds, by name; without virtual functions, bridges, tunnels and the like."""
    at_s = host.boottime_s()
    found = []
    for path in host.glob("/sys/class/net/*"):
        real = host.exists(path / "device") and not host.exists(path / "device/physfn")
        if real or host.exists(path / "bonding"):
            found.append(_read(host, path, at_s))
    return tuple(interface for interface in found if interface is not None)


def _read(host: Host, path: PurePosixPath, at_s: float) -> Interface | None:
    """None for an interface that is not Ethernet."""
    interface = Interface(path.name, at_s, address_of(host, path), is_bond=host.exists(path / "bonding"))
    try:
        if optional_text(host, path / "type") != _ETHERNET:
            return None
        flags = host.text(path / "flags")
        state = host.text(path / "operstate")  # `carrier` answers EINVAL where the interface is not set up
        if not _FLAGS.fullmatch(flags):
            raise ValueError(f"{path / 'flags'}: expected a hexadecimal number, got {flags[:40]!r}")
        return replace(
            interface,
            wanted_up=bool(int(flags, 16) & _UP),
            carrier=_is_up(state, path),
            speed_mbps=_speed(host, path),
            bond=_bond(host, path),
            rdma=host.exists(path / "device/infiniband"),
            downs=optional_count(host, path / "carrier_down_count"),
        )
    except (OSError, ValueError) as error:
        return replace(interface, error=error_line(error, path))


def _is_up(state: str, path: PurePosixPath) -> bool:
    known = ("up", "down", "dormant", "testing", "lowerlayerdown", "notpresent", "unknown")
    if state not in known:
        raise ValueError(f"{path / 'operstate'}: expected one of {', '.join(known)}, got {state[:40]!r}")
    return state in ("up", "unknown", "dormant")  # many drivers never set it


def _speed(host: Host, path: PurePosixPath) -> int:
    """In Mb/s; 0 where there is no link: the driver then gives -1 or EINVAL."""
    text = optional_text(host, path / "speed")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


def _bond(host: Host, path: PurePosixPath) -> str:
    try:
        return host.link(path / "master").name
    except OSError as error:
        if error.errno in REFUSED:
            return ""
        raise
