"""Ports of InfiniBand and RoCE adapters.

/sys/class/infiniband/HCA/ports/PORT: state, phys_state, rate (Gb/s), link_layer, counters/link_downed
(Documentation/ABI/stable/sysfs-class-infiniband). On Ethernet the netdev's carrier_down_count stands for link_downed.
An adapter on the PCI bus whose driver made neither a port nor an interface is a reading without a port.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.netdev import bond_of, is_representor, wanted_up
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.sysfs import error_line, optional_count_once, optional_text

HCAS = "/sys/class/infiniband"
MELLANOX = 0x15B3  # PCI vendor
_INFINIBAND, _ETHERNET = 0x0207, 0x0200  # PCI class and subclass
SATURATED = 255  # the highest value of link_downed, which has 8 bits and does not wrap
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec(?: \((\d{1,2})X(?: (\w+))?\))?")


@dataclass(frozen=True, slots=True)
class Port:
    """One port. `error` is set where its files could not be read; then only its name and `pci` mean something."""

    name: str  # HCA/port
    at_s: float  # CLOCK_BOOTTIME of the reading
    state: str = ""  # DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER
    phys_state: str = ""  # LinkUp, Polling, Disabled, ...
    rate_gbps: float = 0
    width: int = 0  # lanes; 0 where the kernel does not know
    speed: str = ""  # SDR ... XDR; a kernel reports a speed that it does not know as SDR
    link_layer: str = ""  # InfiniBand or Ethernet
    pci: str = ""
    downed: int | None = None  # how often the link was lost; None where the function may not read it
    error: str = ""
    netdev: str = ""  # of an Ethernet port
    bond: str = ""  # of which the netdev is a member
    wanted_up: bool = True  # false: an administrator took the netdev down
    driver: str = ""  # of an adapter without a port
    was_up: bool = False  # this and the next ones come from earlier runs
    waiting_since_s: float | None = None
    flaps_at_s: tuple[float, ...] = ()
    owed: int = 0  # lost links that no finding has reported yet
    blind_at_first: bool = False  # the counter was full when it was first read
    best_gbps: float = 0  # in this boot
    gone: bool = False  # it was there earlier in this boot

    @property
    def hca(self) -> str:
        return self.name.partition("/")[0]

    @property
    def only_adapter(self) -> bool:
        """Whether it is an adapter on the PCI bus without a port."""
        return self.name == self.pci

    @property
    def exists(self) -> bool:
        return not (self.gone or self.only_adapter)


def read_ports(host: Host) -> tuple[Port, ...]:
    """All ports of physical functions, by name, and adapters without one."""
    at_s = host.boottime_s()
    ports = tuple(_read_port(host, place, at_s) for place in places(host))
    return (*ports, *_idle_adapters(host, at_s, {port.pci for port in ports}))


def _idle_adapters(host: Host, at_s: float, known: set[str]) -> Iterator[Port]:
    for device in host.pci_devices():
        kind = device.class_code >> 8
        adapter = kind == _INFINIBAND or (kind == _ETHERNET and device.vendor == MELLANOX)
        if not adapter or device.is_virtual or device.address in known:
            continue
        if not any(host.exists(f"{device.folder}/{made}") for made in ("infiniband", "net")):
            try:
                driver = host.pci_driver(device) or ""
            except OSError:  # it went away just now
                continue
            yield Port(device.address, at_s, pci=device.address, driver=driver[:40])


@dataclass(frozen=True, slots=True)
class Hca:
    """An adapter. `device` is the folder of its PCI device; `pci` is "" where it is on no PCI bus."""

    name: str
    folder: str
    device: str
    pci: str


def hcas(host: Host) -> tuple[Hca, ...]:
    """Adapters that are physical functions, by name. Raises OSError."""
    return tuple(hca for hca in host.entries(HCAS, _hca).values() if hca is not None)


def _hca(host: Host, folder: PurePosixPath) -> Hca | None:
    """None for a virtual function."""
    device = f"{folder}/device"
    if host.exists(f"{device}/physfn"):
        return None
    return Hca(folder.name, str(folder), device, address_of(host, folder))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a port are, and what does not change while its HCA is there."""

    name: str  # HCA/port
    folder: str
    device: str  # of its HCA
    pci: str
    known_layer: str = ""  # "" where it could not be read

    def link_layer(self, host: Host) -> str:
        """InfiniBand or Ethernet. Raises OSError."""
        return self.known_layer or _link_layer(host, self.folder)


def places(host: Host) -> tuple[Place, ...]:
    """The ports of physical functions, by name. Raises OSError."""
    return tuple(place for hca in host.entries(HCAS, _places_of).values() for place in hca)


def _places_of(host: Host, of_hca: PurePosixPath) -> tuple[Place, ...]:
    if (hca := _hca(host, of_hca)) is None:
        return ()
    found = []
    for folder in host.glob(f"{hca.folder}/ports/*"):
        try:
            layer = _link_layer(host, str(folder))
        except OSError:  # the check that reads this port reports it
            layer = ""
        found.append(Place(f"{hca.name}/{folder.name}", str(folder), hca.device, hca.pci, layer))
    return tuple(found)


def _link_layer(host: Host, folder: str) -> str:
    try:
        return host.text(f"{folder}/link_layer")
    except FileNotFoundError:
        return "InfiniBand"


def _read_port(host: Host, place: Place, at_s: float) -> Port:
    name, path, pci = place.name, place.folder, place.pci
    link_layer = ""
    try:
        state, phys_state = _named(host, f"{path}/state"), _named(host, f"{path}/phys_state")
        link_layer = place.link_layer(host)
        rate_gbps, width, speed = _rate(host, f"{path}/rate", needed=state == "ACTIVE")
        port = Port(name, at_s, state, phys_state, rate_gbps, width, speed, link_layer, pci)
        if link_layer == "Ethernet":
            return _with_netdev(host, port, place)
        return replace(port, downed=optional_count_once(host, f"{path}/counters/link_downed"))
    except (OSError, ValueError) as error:
        return Port(name, at_s, link_layer=link_layer, pci=pci, error=error_line(error, path))


def _named(host: Host, path: str) -> str:
    """The word of "4: ACTIVE". Raises ValueError."""
    number, colon, word = (text := host.text(path)).partition(": ")
    if not (colon and number.isdecimal() and word):
        raise ValueError(f'{path}: expected "NUMBER: NAME", got {text[:40]!r}')
    return word


def _rate(host: Host, path: str, needed: bool) -> tuple[float, int, str]:
    """Zeros where a port that is not up has no rate, or none that means anything. Raises OSError, ValueError."""
    text = host.text(path) if needed else optional_text(host, path)
    found = _RATE.fullmatch(text)
    if not found and not needed:
        return 0, 0, ""
    if not found:
        raise ValueError(f"{path}: expected a rate in Gb/sec, got {text[:40]!r}")
    return float(found[1]), int(found[2] or 0), found[3] or ""


def _with_netdev(host: Host, port: Port, place: Place) -> Port:
    """Of the interfaces of one function, only the uplink has the port's link. Raises OSError, ValueError."""
    uplinks = [path for path in host.glob(f"{place.device}/net/*") if not is_representor(host, path)]
    number = str(int(place.name.rpartition("/")[2]) - 1)
    own = [p for p in uplinks if len(uplinks) == 1 or (optional_text(host, p / "dev_port") or number) == number]
    if not own:
        return port
    counts = [c for p in own if (c := optional_count_once(host, p / "carrier_down_count")) is not None]
    return replace(
        port,
        netdev=own[0].name,
        bond=next((bond for p in own if (bond := bond_of(host, p))), ""),
        wanted_up=any(not host.exists(p / "flags") or wanted_up(host, p) for p in own),
        downed=sum(counts) if counts else None,
    )
