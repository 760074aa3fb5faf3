"""A clock that is not synchronised. Logs, certificates and munge credentials need the right time.

Asks the kernel with adjtimex(2), whose state chronyd, ntpd and systemd-timesyncd keep up to date.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, ClockState, Finding, Host, Severity


@dataclass(frozen=True, slots=True)
class Policy:
    """After a boot a clock needs some minutes."""

    boot_grace_s: float = 900.0  # after a boot, in which nothing is reported
    max_error_ms: float = 2000.0  # of the error that the kernel computes, which grows while no time server answers
    severity: Severity = Severity.WARNING  # of a clock that is not synchronised


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
