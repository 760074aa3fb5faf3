"""Errors that InfiniBand and RoCE ports count, by their rates; counters that are full and count no more.

Reads ports/PORT/counters (Documentation/ABI/stable/sysfs-class-infiniband); on Ethernet the netdev's receive errors.
What congestion and programs cause (port_xmit_wait, VL15_dropped, RNR retries, flushed requests) is not judged, nor what
the far side reports of itself. Only the rise between two looks counts; a counter that fell was reset.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.ib_counters import FULL, Counters, read_counters
from nodetriage.checks.rules.counters import HOUR_S, per_hour


@dataclass(frozen=True, slots=True)
class Limit:
    """How fast a counter may rise."""

    per_h: float  # at or above this rate between two looks
    at_least: int = 1  # errors between two looks; below that a rate is chance
    severity: Severity = Severity.WARNING


def _limits() -> dict[str, Limit]:
    """120 symbol errors an hour are the bit error rate of 1e-12 that the InfiniBand specification allows."""
    return {
        "symbol_error": Limit(120, 20, Severity.MAJOR),
        "link_error_recovery": Limit(3, 3),
        "port_rcv_errors": Limit(10 * HOUR_S, 100),
        "port_xmit_discards": Limit(100 * HOUR_S, 1000),
        "local_link_integrity_errors": Limit(0, 1, Severity.MAJOR),
        "excessive_buffer_overrun_errors": Limit(0, 1, Severity.MAJOR),
        "rx_crc_errors": Limit(120, 20, Severity.MAJOR),
    }


@dataclass(frozen=True, slots=True)
class Policy:
    """`limits` by counter; those that are named in a file are added to, or replace, the defaults."""

    limits: Mapping[str, Limit] = field(default_factory=_limits)
    full_since_boot: bool = False  # report counters too that were full at the first look: many are, after one bad day


def read(host: Host) -> tuple[Counters, ...]:
    """Raises Unavailable where no port tells of a counter."""
    ports = read_counters(host)
    if not any(port.values or port.error for port in ports):
        raise Unavailable("no port in /sys/class/infiniband has counters that may be read")
    return ports


def next_state(before: tuple[Counters, ...] | None, now: tuple[Counters, ...]) -> tuple[Counters, ...]:
    """The newest values, with the counters that were full at the first look at their port and have been since."""
    old = {port.name: port for port in before or ()}
    return tuple(_since(old.get(port.name), port) for port in now)


def _since(old: Counters | None, port: Counters) -> Counters:
    full = [c for c in FULL if port.is_full(c) and (old is None or c in old.full_at_first or not old.values)]
    return replace(port, full_at_first=tuple(full))


def judge(now: tuple[Counters, ...], before: tuple[Counters, ...] | None, policy: Policy) -> Iterator[Finding]:
    """One finding a port: the gravest of the counters that rose too fast, and the others in its evidence."""
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
    evidence: dict[str, Scalar] = {"pci": port.pci, "over_s": round(waited_s)}
    over = []
    for counter, limit in limits.items():
        rise = port.values.get(counter, 0) - old.values.get(counter, port.values.get(counter, 0))
        if rise >= max(limit.at_least, 1) and waited_s > 0 and per_hour(rise, waited_s) >= limit.per_h:
            evidence[counter] = rise
            over.append(limit.severity)
    if over:
        yield Finding(port.name, "ib_errors", max(over), evidence)


CHECK = Check(
    name="ib_errors",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("ib_errors", "ib_counter_saturated", "ib_port_unreadable"),
    worker="fabric",
    every_s=300,
    next_state=next_state,
)
