"""The bytes through each RDMA port, read by a worker.

Sources: port_rcv_data and port_xmit_data of Documentation/ABI/stable/sysfs-class-infiniband, in units of four bytes.
The driver asks the port's firmware, which may hang, so no other process reads them.
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
    """No settings."""


def read(host: Host) -> tuple[PortBytes, ...]:
    """The ports that have both counters, by name. Leaves out virtual functions: their counters are the whole port's."""
    ports = []
    for place in places(host):
        received = optional_count(host, f"{place.folder}/counters/port_rcv_data")
        sent = optional_count(host, f"{place.folder}/counters/port_xmit_data")
        if received is not None and sent is not None:
            ports.append(PortBytes(place.name, received * UNIT_BYTES, sent * UNIT_BYTES))
    return tuple(ports)


def judge(now: tuple[PortBytes, ...], before: tuple[PortBytes, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Never finds anything: only the controller, which knows the jobs, can judge silence."""
    yield from ()


# A Check, so that a worker can run it; no catalogue has it, and no verdict.
TRAFFIC: Check[tuple[PortBytes, ...], Policy] = Check(
    name="traffic", read=read, judge=judge, policy=Policy(), faults=(), worker="fabric", timeout_s=5.0
)
