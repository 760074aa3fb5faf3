"""Ethernet interfaces of real adapters, as sysfs has them (Documentation/ABI/testing/sysfs-class-net)."""

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import ADDRESS
from nodetriage.checks.readers.sysfs import REFUSED, count_if_told, text_if_told, told

_ETHERNET = "1"  # ARPHRD_ETHER; 32 is IP over InfiniBand
_FLAGS = re.compile(r"0x[0-9a-f]{1,8}")
_UP = 0x1  # IFF_UP: an administrator wants it up


@dataclass(frozen=True, slots=True)
class Interface:
    """`speed_mbps` is 0 where the driver does not know. The last three are the memory's."""

    name: str
    at_s: float
    pci: str = ""  # "" of a bond, and of what hangs on USB, as the BMC's
    wanted_up: bool = False
    carrier: bool = False
    speed_mbps: int = 0
    bond: str = ""  # that it belongs to
    is_bond: bool = False
    rdma: bool = False  # ib_link looks after it
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
    """None for what is no Ethernet."""
    interface = Interface(path.name, at_s, _pci(host, path), is_bond=host.exists(path / "bonding"))
    try:
        if text_if_told(host, path / "type") != _ETHERNET:
            return None
        flags = host.text(path / "flags")
        state = host.text(path / "operstate")  # `carrier` answers EINVAL where the interface is not wanted up
        if not _FLAGS.fullmatch(flags):
            raise ValueError(f"{path / 'flags'}: expected a hexadecimal number, got {flags[:40]!r}")
        return replace(
            interface,
            wanted_up=bool(int(flags, 16) & _UP),
            carrier=_is_up(state, path),
            speed_mbps=_speed(host, path),
            bond=_bond(host, path),
            rdma=host.exists(path / "device/infiniband"),
            downs=count_if_told(host, path / "carrier_down_count"),
        )
    except (OSError, ValueError) as error:
        return replace(interface, error=told(error, path))


def _is_up(state: str, path: PurePosixPath) -> bool:
    known = ("up", "down", "dormant", "testing", "lowerlayerdown", "notpresent", "unknown")
    if state not in known:
        raise ValueError(f"{path / 'operstate'}: expected one of {', '.join(known)}, got {state[:40]!r}")
    return state in ("up", "unknown", "dormant")  # many drivers never say


def _speed(host: Host, path: PurePosixPath) -> int:
    """In Mb/s; the driver says -1, or answers EINVAL, where there is no link."""
    text = text_if_told(host, path / "speed")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


def _bond(host: Host, path: PurePosixPath) -> str:
    try:
        return host.link(path / "master").name
    except OSError as error:
        if error.errno in REFUSED:
            return ""
        raise


def _pci(host: Host, path: PurePosixPath) -> str:
    try:
        name = host.link(path / "device").name.lower()
    except OSError:
        return ""
    return name if ADDRESS.fullmatch(name) else ""
