"""Errors that InfiniBand and RoCE ports count, by their rates; counters that are full and no longer count.

Reads ports/PORT/counters (Documentation/ABI/stable/sysfs-class-infiniband), on Ethernet the netdev's receive errors,
and the transport's counters in hw_counters. The check leaves out what programs cause (flushed requests, access errors)
and what the other end reports about itself. Only the rise between two runs counts; a counter that fell was reset.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.ib_counters import FULL, TRANSPORT, Counters, read_counters
from nodetriage.checks.rules.counters import HOUR_S, per_hour


@dataclass(frozen=True, slots=True)
class Limit:
    """A counter that rises at this rate or faster is a fault."""

    per_h: float  # errors an hour between two runs
    at_least: int = 1  # errors between two runs, below which the rate is chance
    severity: Severity = Severity.WARNING


def _limits() -> dict[str, Limit]:
    """The InfiniBand specification allows a bit error rate of 1e-12, which is 120 symbol errors an hour.

    A sender whose timer expires lost a packet or its partner; what arrives out of order was lost on the way, or took
    another path. Congestion notifications (CNP) are the fabric's normal means, so only many are worth a word.
    """
    lost, late = Limit(10 * HOUR_S, 1000), Limit(60, 10)
    congested = Limit(10_000 * HOUR_S, 1_000_000, Severity.INFO)
    return {
        "symbol_error": Limit(120, 20, Severity.MAJOR),
        "link_error_recovery": Limit(3, 3),
        "port_rcv_errors": Limit(10 * HOUR_S, 100),
        "port_xmit_discards": Limit(100 * HOUR_S, 1000),
        "local_link_integrity_errors": Limit(0, 1, Severity.MAJOR),
        "excessive_buffer_overrun_errors": Limit(0, 1, Severity.MAJOR),
        "rx_crc_errors": Limit(120, 20, Severity.MAJOR),
        "rx_icrc_encapsulated": Limit(0, 1),
        **dict.fromkeys(("local_ack_timeout_err", "to_retransmits"), late),
        **dict.fromkeys(("out_of_sequence", "packet_seq_err", "roce_adp_retrans", "rnr_nak_retry_err"), lost),
        **dict.fromkeys(("oos_drop_count", "seq_err_naks_rcvd", "rnr_naks_rcvd", "rx_roce_discards"), lost),
        **dict.fromkeys(("np_cnp_sent", "rp_cnp_handled"), congested),
    }


@dataclass(frozen=True, slots=True)
class Policy:
    """A limit in a settings file replaces the default for the same counter; the other defaults stay."""

    limits: Mapping[str, Limit] = field(default_factory=_limits)  # by counter
    full_since_boot: bool = False  # report counters too that were full in the first run, often from one bad day


def read(host: Host) -> tuple[Counters, ...]:
    """Raises Unavailable where no port has a counter that may be read."""
    ports = read_counters(host)
    if not any(port.values or port.error for port in ports):
        raise Unavailable("no port in /sys/class/infiniband has counters that may be read")
    return ports


def next_state(before: tuple[Counters, ...] | None, now: tuple[Counters, ...]) -> tuple[Counters, ...]:
    """The newest values, with the counters that were full when their port was first seen and still are."""
    old = {port.name: port for port in before or ()}
    return tuple(_since(old.get(port.name), port) for port in now)


def _since(old: Counters | None, port: Counters) -> Counters:
    full = [c for c in FULL if port.is_full(c) and (old is None or c in old.full_at_first or not old.values)]
    return replace(port, full_at_first=tuple(full))


def judge(now: tuple[Counters, ...], before: tuple[Counters, ...] | None, policy: Policy) -> Iterator[Finding]:
    """One finding for each port, with the gravest severity; its evidence has each counter that rose too fast."""
    old = {port.name: port for port in before or ()}
    for port in next_state(before, now):
        if port.error:
            yield Finding(port.name, "ib_port_unreadable", Severity.MAJOR, {"error": port.error, "pci": port.pci})
        full = [c for c in FULL if port.is_full(c) and (policy.full_since_boot or c not in port.full_at_first)]
        if full:
            yield Finding(
                port.name, "ib_counter_saturated", Severity.WARNING, {"counters": " ".join(full), "pci": port.pci}
            )
        if (earlier := old.get(port.name)) is not None:
            yield from _rates(earlier, port, policy.limits)


def _rates(old: Counters, port: Counters, limits: Mapping[str, Limit]) -> Iterator[Finding]:
    waited_s = port.at_s - old.at_s
    over: dict[str, list[tuple[str, int, Severity]]] = {}
    for counter, limit in limits.items():
        rise = port.values.get(counter, 0) - old.values.get(counter, port.values.get(counter, 0))
        if rise >= max(limit.at_least, 1) and waited_s > 0 and per_hour(rise, waited_s) >= limit.per_h:
            fault = "ib_transport_errors" if counter in TRANSPORT else "ib_errors"
            over.setdefault(fault, []).append((counter, rise, limit.severity))
    for fault, counters in over.items():
        evidence: dict[str, Scalar] = {"pci": port.pci, "over_s": round(waited_s), **{c: r for c, r, _ in counters}}
        yield Finding(port.name, fault, max(severity for _, _, severity in counters), evidence)


CHECK = Check(
    name="ib_errors",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("ib_errors", "ib_transport_errors", "ib_counter_saturated", "ib_port_unreadable"),
    worker="fabric",
    every_s=300,
    next_state=next_state,
)
