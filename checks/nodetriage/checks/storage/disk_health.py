"""Disks that report that they are failing, worn or hot, or that lost data.

Asks `smartctl` or `nvme`: NVM Express base specification, SMART / health information (log page 02h), whose critical
warning has one bit for each trouble. Only errors since the last run count.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.disks import Disk, read_disks
from nodetriage.checks.readers.smart import Smart

_SPARE, _TEMPERATURE, _UNRELIABLE, _READ_ONLY, _NO_BACKUP, _NO_MEMORY = (1 << bit for bit in range(6))
_WORN_PCT = 100  # of the rated life


@dataclass(frozen=True, slots=True)
class Policy:
    """What should be here, and severities."""

    expected_nvme: int = 0  # NVMe controllers; 0: any number is right
    failing: Severity = Severity.CRITICAL  # of a disk that reports that it is failing
    no_backup: Severity = Severity.MAJOR  # of a disk that would lose data with its power
    spare_low: Severity = Severity.MAJOR  # of a disk with fewer spare blocks than its maker's threshold
    media_errors: Severity = Severity.MAJOR  # of new media errors
    worn_pct: int = 100  # of its rated life, from which a disk counts as worn; 0: never
    pending_sectors: int = 1  # of an ATA disk, from which they are a fault; 0: never


def read(host: Host) -> tuple[Disk, ...]:
    return read_disks(host)


def judge(now: tuple[Disk, ...], before: tuple[Disk, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where there is no disk and none is expected, or no tool to ask and no other finding."""
    if not now and not policy.expected_nvme:
        raise Unavailable("no NVMe or SCSI disk in /sys")
    old = {disk.component: disk for disk in before or ()}
    found = list(_missing(now, policy.expected_nvme))
    found += [f for disk in now for f in _judge_one(disk, old.get(disk.component), policy)]
    if not found and (missing := [disk.missing for disk in now if disk.missing]):
        raise Unavailable(missing[0])
    yield from found


def _missing(now: tuple[Disk, ...], expected: int) -> Iterator[Finding]:
    found = sum(disk.device.startswith("/dev/nvme") for disk in now)
    if found < expected:
        yield Finding("nvme", "disk_missing", Severity.WARNING, {"found": found, "expected": expected})


def _judge_one(disk: Disk, old: Disk | None, policy: Policy) -> Iterator[Finding]:
    facts: dict[str, Scalar] = {"device": disk.device}
    if disk.error:
        yield Finding(disk.component, "disk_unreadable", Severity.WARNING, {**facts, "error": disk.error})
    if (smart := disk.smart) is None:
        return
    bits, spare, least = smart.critical_warning or 0, smart.spare_pct, smart.spare_threshold_pct
    yield from _failing(disk, smart, policy)
    if bits & _SPARE or (spare is not None and least is not None and spare < least):
        spares = {"spare_pct": -1 if spare is None else spare, "threshold_pct": -1 if least is None else least}
        yield Finding(disk.component, "disk_spare_low", policy.spare_low, {**facts, **spares})
    if bits & _TEMPERATURE:
        yield Finding(disk.component, "disk_hot", Severity.WARNING, {**facts, "critical_warning": bits})
    yield from _wear(disk, smart, old.smart if old else None, policy)


def _failing(disk: Disk, smart: Smart, policy: Policy) -> Iterator[Finding]:
    """A disk at the end of its rated life sets the bit for unreliability too: worn is not failing."""
    bits = smart.critical_warning or 0
    worn = (smart.used_pct or 0) >= _WORN_PCT and not bits & (_SPARE | _READ_ONLY)
    reasons = {
        "status_failed": policy.failing if smart.passed is False and smart.critical_warning is None else None,
        "unreliable": policy.failing if bits & _UNRELIABLE and not worn else None,
        "read_only": policy.failing if bits & _READ_ONLY else None,
        "no_power_loss_protection": policy.no_backup if bits & _NO_BACKUP else None,
        "persistent_memory": Severity.WARNING if bits & _NO_MEMORY else None,
    }
    if graves := [severity for severity in reasons.values() if severity is not None]:
        reason = " ".join(name for name, severity in reasons.items() if severity is not None)
        facts: dict[str, Scalar] = {"device": disk.device, "critical_warning": bits, "reason": reason}
        yield Finding(disk.component, "disk_failing", max(graves), facts)


def _wear(disk: Disk, smart: Smart, old: Smart | None, policy: Policy) -> Iterator[Finding]:
    facts: dict[str, Scalar] = {"device": disk.device}
    rise = (smart.media_errors or 0) - old.media_errors if old and old.media_errors is not None else 0
    if rise > 0:
        yield Finding(disk.component, "disk_media_errors", policy.media_errors, {**facts, "errors": rise})
    if policy.worn_pct and (smart.used_pct or 0) >= policy.worn_pct:
        yield Finding(disk.component, "disk_worn", Severity.WARNING, {**facts, "used_pct": smart.used_pct or 0})
    if policy.pending_sectors and (smart.pending_sectors or 0) >= policy.pending_sectors:
        yield Finding(
            disk.component, "disk_pending_sectors", Severity.WARNING, {**facts, "sectors": smart.pending_sectors or 0}
        )


CHECK = Check(
    name="disk_health",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "disk_missing", "disk_unreadable", "disk_failing", "disk_spare_low", "disk_hot",
        "disk_media_errors", "disk_worn", "disk_pending_sectors",
    ),
    worker="storage",
    every_s=1800,
    timeout_s=15,
    wakes_on=("udev:nvme", "udev:scsi_disk"),
)  # fmt: skip
