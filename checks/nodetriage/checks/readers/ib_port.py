"""Ports of InfiniBand and RoCE adapters.

/sys/class/infiniband/HCA/ports/PORT: state, phys_state, rate (Gb/s), link_layer, counters/link_downed
(Documentation/ABI/stable/sysfs-class-infiniband). On Ethernet the netdev's carrier_down_count stands for link_downed.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.sysfs import error_line, optional_count_once

HCAS = "/sys/class/infiniband"
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
    was_up: bool = False  # this and the next three come from earlier runs
    waiting_since_s: float | None = None
    flaps_at_s: tuple[float, ...] = ()
    blind_at_first: bool = False  # the counter was full when it was first read

    @property
    def hca(self) -> str:
        return self.name.partition("/")[0]


def read_ports(host: Host) -> tuple[Port, ...]:
    """All ports of physical functions, by name."""
    at_s = host.boottime_s()
    return tuple(_read_port(host, place, at_s) for place in places(host))


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
    try:
        state, phys_state = _named(host, f"{path}/state"), _named(host, f"{path}/phys_state")
        rate_gbps, width, speed = _rate(host, f"{path}/rate")
        link_layer = place.link_layer(host)
        if link_layer == "Ethernet":
            downed = _carrier_downs(host, place.device)
        else:
            downed = optional_count_once(host, f"{path}/counters/link_downed")
    except (OSError, ValueError) as error:
        return Port(name, at_s, pci=pci, error=error_line(error, path))
    return Port(name, at_s, state, phys_state, rate_gbps, width, speed, link_layer, pci, downed)


def _named(host: Host, path: str) -> str:
    """The word of "4: ACTIVE". Raises ValueError."""
    number, colon, word = (text := host.text(path)).partition(": ")
    if not (colon and number.isdecimal() and word):
        raise ValueError(f'{path}: expected "NUMBER: NAME", got {text[:40]!r}')
    return word


def _rate(host: Host, path: str) -> tuple[float, int, str]:
    text = host.text(path)
    found = _RATE.fullmatch(text)
    if not found:
        raise ValueError(f"{path}: expected a rate in Gb/sec, got {text[:40]!r}")
    return float(found[1]), int(found[2] or 0), found[3] or ""


def _carrier_downs(host: Host, device: str) -> int | None:
    counts = [optional_count_once(host, path) for path in host.glob(f"{device}/net/*/carrier_down_count")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
