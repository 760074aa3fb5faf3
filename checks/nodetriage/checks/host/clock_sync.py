"""A clock that nobody keeps right: logs, certificates and credentials (munge) stop making sense.

Asks the kernel with adjtimex(2), which chronyd, ntpd and systemd-timesyncd keep up to date; none of them is asked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, ClockState, Finding, Host, Severity


@dataclass(frozen=True, slots=True)
class Policy:
    """After a boot a clock may take its time."""

    boot_grace_s: float = 900.0
    max_error_ms: float = 2000.0  # the kernel's own bound; it grows while no server is heard
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, slots=True)
class Reading:
    """`at_s` is CLOCK_BOOTTIME."""

    at_s: float
    clock: ClockState


def read(host: Host) -> Reading:
    return Reading(host.boottime_s(), host.clock())


def judge(now: Reading, before: Reading | None, policy: Policy) -> Iterator[Finding]:
    error_ms = now.clock.max_error_us / 1000
    evidence = {
        "synchronised": now.clock.synchronised,
        "max_error_ms": error_ms,
        "offset_ms": now.clock.offset_us / 1000,
    }
    if now.at_s < policy.boot_grace_s:
        return
    if not now.clock.synchronised or error_ms > policy.max_error_ms:
        yield Finding("clock", "clock_unsynchronised", policy.severity, evidence)


CHECK = Check(
    name="clock_sync",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("clock_unsynchronised",),
    every_s=300,
    raise_after=2,
)
