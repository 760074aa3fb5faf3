"""Error counters of InfiniBand and RoCE ports (Documentation/ABI/stable/sysfs-class-infiniband)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodetriage.checks.ib_port import pci_of
from nodetriage.checks.model import Host
from nodetriage.checks.sysfs import REFUSED, to_count, told

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
    return tuple(
        _read_port(host, path, at_s)
        for path in host.glob("/sys/class/infiniband/*/ports/*")
        if not host.exists(path.parent.parent / "device/physfn")
    )


def _read_port(host: Host, port: PurePosixPath, at_s: float) -> Counters:
    device = port.parent.parent / "device"
    name, pci = f"{port.parent.parent.name}/{port.name}", pci_of(host, device)
    paths: dict[str, tuple[PurePosixPath, ...]] = {counter: (port / "counters" / counter,) for counter in FULL}
    try:
        if host.exists(port / "link_layer") and host.text(port / "link_layer") == "Ethernet":
            paths = {c: tuple(host.glob(str(device / f"net/*/statistics/{c}"))) for c in _ETHERNET}
        values = {c: v for c, files in paths.items() if (v := _sum(host, files)) is not None}
    except (OSError, ValueError) as error:
        return Counters(name, at_s, pci, {}, told(error, port))
    return Counters(name, at_s, pci, values)


def _sum(host: Host, files: tuple[PurePosixPath, ...]) -> int | None:
    """None where no file tells. A bond has several netdevs."""
    told_ = [value for path in files if (value := _asked(host, path)) is not None]
    return sum(told_) if told_ else None


def _asked(host: Host, path: PurePosixPath) -> int | None:
    try:
        text = host.ask_once(path)
    except OSError as error:
        if error.errno in REFUSED:
            return None
        raise
    return to_count(text, path)
