"""How a worker reads the bytes that went through each RDMA port.

Sources: port_rcv_data and port_xmit_data of Documentation/ABI/stable/sysfs-class-infiniband, which count in units of
four bytes. A port's counters are asked of its firmware, and that may hang: so no other process reads them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.readers.ib_port import places
from nodetriage.checks.readers.sysfs import optional_count

UNIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class PortBytes:
    """One port's counters since the driver was loaded."""

    port: str  # HCA/port
    rx_bytes: int
    tx_bytes: int


@dataclass(frozen=True, slots=True)
class Policy:
    """Nothing to set."""


def read(host: Host) -> tuple[PortBytes, ...]:
    """Ports that tell both counters, by name; virtual functions, whose counters are the whole port's, are left out."""
    ports = []
    for place in places(host):
        received = optional_count(host, f"{place.folder}/counters/port_rcv_data")
        sent = optional_count(host, f"{place.folder}/counters/port_xmit_data")
        if received is not None and sent is not None:
            ports.append(PortBytes(place.name, received * UNIT_BYTES, sent * UNIT_BYTES))
    return tuple(ports)


def judge(now: tuple[PortBytes, ...], before: tuple[PortBytes, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Nothing: what silence means is the controller's to say, which knows of the jobs."""
    yield from ()


# In the shape of a check, so that a worker runs it like one; it is in no catalogue and has no verdict.
TRAFFIC: Check[tuple[PortBytes, ...], Policy] = Check(
    name="traffic", read=read, judge=judge, policy=Policy(), faults=(), worker="fabric", timeout_s=5.0
)
