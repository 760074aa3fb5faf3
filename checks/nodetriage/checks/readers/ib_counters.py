"""Error counters of InfiniBand and RoCE ports: numbers of errors since the counter was reset.

/sys/class/infiniband/HCA/ports/PORT/counters (Documentation/ABI/stable/sysfs-class-infiniband); on Ethernet the
netdev's statistics (Documentation/ABI/testing/sysfs-class-net-statistics). The driver's own are in
ports/PORT/hw_counters: drivers/infiniband/hw/mlx5/counters.c,
drivers/infiniband/hw/bnxt_re/hw_counters.c.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetriage.checks.model import Host
from nodetriage.checks.readers.ib_port import Place, places
from nodetriage.checks.readers.netdev import is_representor
from nodetriage.checks.readers.sysfs import error_line, optional_count_once

# Their highest values: a counter stays there and does not wrap. ib_link reads link_downed.
FULL = {
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "port_rcv_errors": 65535,
    "port_xmit_discards": 65535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
}
_ETHERNET = ("rx_crc_errors", "rx_length_errors")  # of the netdev; on Ethernet the counters above stay 0
# Of transports that send again, of packets that were lost or damaged on the way, and of congestion.
TRANSPORT = frozenset((
    "local_ack_timeout_err", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "roce_adp_retrans",
    "rx_icrc_encapsulated", "np_cnp_sent", "rp_cnp_handled",
    "to_retransmits", "seq_err_naks_rcvd", "rnr_naks_rcvd", "oos_drop_count", "rx_roce_discards",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counters:
    """One port. `values` lacks what this function may not read. `error` is set where a file holds no count."""

    name: str  # HCA/port
    at_s: float  # CLOCK_BOOTTIME
    pci: str
    values: Mapping[str, int]
    error: str = ""
    full_at_first: tuple[str, ...] = ()  # kept from earlier runs: counters that were full when first read

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
            uplinks = [p for p in host.glob(f"{place.device}/net/*") if not is_representor(host, p)]
            paths = {c: [f"{p}/statistics/{c}" for p in uplinks] for c in _ETHERNET}
        else:
            paths = {counter: [f"{place.folder}/counters/{counter}"] for counter in FULL}
        paths |= {p.name: [str(p)] for p in host.glob(f"{place.folder}/hw_counters/*") if p.name in TRANSPORT}
        values = {c: v for c, files in paths.items() if (v := _sum(host, files)) is not None}
    except (OSError, ValueError) as error:
        return Counters(name, at_s, pci, {}, error_line(error, place.folder))
    return Counters(name, at_s, pci, values)


def _sum(host: Host, files: list[str]) -> int | None:
    """The sum over the netdevs, of which a bond has several; None where no file can be read."""
    told_ = [value for path in files if (value := optional_count_once(host, path)) is not None]
    return sum(told_) if told_ else None
