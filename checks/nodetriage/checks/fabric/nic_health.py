"""Network adapters whose driver says that their firmware or queues are in error.

Asks `devlink health` (Documentation/networking/devlink/devlink-health.rst): mlx5 reports fw, fw_fatal, tx, rx and vnic,
bnxt fw and fw_fatal. The component is the adapter, whatever functions it has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.tools.devlink import Reporter, read_health

_FIRMWARE = ("fw", "fw_fatal")


@dataclass(frozen=True, slots=True)
class Policy:
    """What an adapter in error is worth."""

    firmware: Severity = Severity.MAJOR  # its firmware is in error
    queues: Severity = Severity.WARNING  # a queue, or anything else of it
    recovered: Severity = Severity.WARNING  # it was in error since the last run, and the driver recovered it


def read(host: Host) -> tuple[Reporter, ...]:
    """Raises Unavailable where devlink is not installed or knows no adapter that reports."""
    try:
        found = read_health(host)
    except ValueError as error:
        raise Unavailable(f"devlink gives no health report: {error}") from None
    if not found:
        raise Unavailable("no network adapter reports its health to devlink")
    return found


def judge(now: tuple[Reporter, ...], before: tuple[Reporter, ...] | None, policy: Policy) -> Iterator[Finding]:
    """One finding for an adapter: the gravest of its functions and reporters."""
    old = {(r.pci, r.name): r.errors for r in before or ()}
    worst: dict[str, tuple[Severity, Reporter, int]] = {}
    for reporter in now:
        rise = max(reporter.errors - old.get((reporter.pci, reporter.name), reporter.errors), 0)
        if reporter.state == "error":
            severity = policy.firmware if reporter.name in _FIRMWARE else policy.queues
        elif rise:
            severity = policy.recovered
        else:
            continue
        adapter = reporter.pci.rpartition(".")[0]
        if adapter not in worst or severity > worst[adapter][0]:
            worst[adapter] = severity, reporter, rise
    for severity, reporter, rise in worst.values():
        evidence: dict[str, Scalar] = {
            "reporter": reporter.name, "state": reporter.state, "errors": reporter.errors, "new_errors": rise,
            "recovered": reporter.recovered,
        }  # fmt: skip
        yield Finding(reporter.pci, "nic_unhealthy", severity, evidence)


CHECK = Check(
    name="nic_health",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("nic_unhealthy",),
    worker="bmc",  # devlink waits for a driver that recovers its adapter
    every_s=1800,
    timeout_s=10,
)
