"""Error counters of InfiniBand and RoCE ports (Documentation/ABI/stable/sysfs-class-infiniband)."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetriage.checks.model import Host
from nodetriage.checks.readers.ib_port import Place, places
from nodetriage.checks.readers.sysfs import count_if_answered, told

# Their highest values: there they stay, they do not wrap. link_downed is the business of ib_link.
FULL = {
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "port_rcv_errors": 65535,
    "port_xmit_discards": 65535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
}
_ETHERNET = ("rx_crc_errors", "rx_length_errors")  # of the netdev: on Ethernet the counters above stay 0


@dataclass(frozen=True, slots=True)
class Counters:
    """One port. A counter that the function may not be asked for is absent. `error` is set where one made no sense."""

    name: str  # HCA/port
    at_s: float  # CLOCK_BOOTTIME
    pci: str
    values: Mapping[str, int]
    error: str = ""
    full_at_first: tuple[str, ...] = ()  # the memory's: counters that were full when they were first looked at

    def is_full(self, counter: str) -> bool:
        return self.values.get(counter) == FULL.get(counter, -1)


def read_counters(host: Host) -> tuple[Counters, ...]:
    """All ports of physical functions, by name."""
    at_s = host.boottime_s()
    return tuple(_read_port(host, place, at_s) for place in places(host))


def _read_port(host: Host, place: Place, at_s: float) -> Counters:
    name, pci = place.name, place.pci
    try:
        if place.link_layer(host) == "Ethernet":
            paths = {c: [str(p) for p in host.glob(f"{place.device}/net/*/statistics/{c}")] for c in _ETHERNET}
        else:
            paths = {counter: [f"{place.folder}/counters/{counter}"] for counter in FULL}
        values = {c: v for c, files in paths.items() if (v := _sum(host, files)) is not None}
    except (OSError, ValueError) as error:
        return Counters(name, at_s, pci, {}, told(error, place.folder))
    return Counters(name, at_s, pci, values)


def _sum(host: Host, files: list[str]) -> int | None:
    """None where no file tells. A bond has several netdevs."""
    told_ = [value for path in files if (value := count_if_answered(host, path)) is not None]
    return sum(told_) if told_ else None
