"""Volumes of RAID controllers that lack a drive or have failed, and drives that failed.

Asks storcli, perccli or ssacli, whichever is installed, where a RAID controller is on the PCI bus (class 0104).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers.tools.raid import Raid, read_raid

_RAID = 0x0104  # PCI class and subclass (include/linux/pci_ids.h)
_INTEL = 0x8086  # its volume management devices have this class too; md drives their disks


@dataclass(frozen=True, slots=True)
class Policy:
    """What each is worth."""

    degraded: Severity = Severity.MAJOR  # of a volume that goes on without a drive
    failed: Severity = Severity.CRITICAL  # of a volume that has stopped
    unused_drive: Severity = Severity.WARNING  # of a bad drive that no volume lacks


def read(host: Host) -> Raid:
    """Raises Unavailable where there is no RAID controller, or no tool for it."""
    if not any(d.class_code >> 8 == _RAID and d.vendor != _INTEL for d in host.pci_devices()):
        raise Unavailable("no RAID controller on the PCI bus")
    return read_raid(host)


def judge(now: Raid, before: Raid | None, policy: Policy) -> Iterator[Finding]:
    """A drive that a volume lacks is one finding, on the drive."""
    bad = [drive for drive in now.drives if drive.bad]
    told: set[str] = set()
    for volume in now.volumes:
        facts = {"volume": volume.name, "level": volume.level, "state": volume.state}
        if volume.state == "failed":
            yield Finding(volume.name, "raid_failed", policy.failed, facts)
        elif volume.state == "degraded":
            controller = volume.name.partition("/")[0]
            its = [d for d in bad if d.name.startswith(f"{controller}/") and d.group in ("", volume.group)]
            for drive in its:
                told.add(drive.name)
                yield Finding(drive.name, "raid_degraded", policy.degraded, {**facts, "drive_state": drive.state})
            if not its:
                yield Finding(volume.name, "raid_degraded", policy.degraded, facts)
    for drive in bad:
        if drive.name not in told:
            yield Finding(drive.name, "disk_failing", policy.unused_drive, {"reason": drive.state})


CHECK = Check(
    name="raid_controller",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("raid_degraded", "raid_failed", "disk_failing"),
    worker="bmc",  # a tool of seconds must not hold back the checks of mounts
    every_s=3600,
    timeout_s=45,
)
