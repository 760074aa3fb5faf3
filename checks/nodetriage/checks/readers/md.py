"""RAID sets of the kernel (md), with the disk behind each member.

/sys/block/mdN/md: level, array_state, raid_disks, degraded, sync_action, and state of each dev-NAME
(Documentation/admin-guide/md.rst).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.sysfs import error_line, optional_count, optional_text

_NVME = re.compile(r"(nvme\d+)(?:c\d+)?n\d+(?:p\d+)?")
_PARTITION = re.compile(r"((?:[sv]d|xvd)[a-z]{1,4})\d{0,3}|(mmcblk\d+)(?:p\d+)?")
_MEMBERS = 256  # that are read of one set


@dataclass(frozen=True, slots=True)
class Member:
    """One member. `disk` is the PCI address of an NVMe disk, else the kernel's name of the disk."""

    device: str  # of the partition or disk: nvme1n1p2
    disk: str
    faulty: bool


@dataclass(frozen=True, slots=True)
class Array:
    """One RAID set. `error` is set where its files could not be read."""

    name: str
    level: str = ""  # raid1, raid5, ...; "" where it has none (a container of external metadata)
    state: str = ""  # active, clean, readonly, inactive, broken, ...
    disks: int = 0  # that it should have
    missing: int = 0
    syncing: str = ""  # idle, resync, recover, check, ...
    members: tuple[Member, ...] = ()
    error: str = ""


def read_arrays(host: Host) -> tuple[Array, ...]:
    """Every md array of this machine, by the name of its block device."""
    return tuple(_array(host, path) for path in host.glob("/sys/block/md*") if host.exists(path / "md"))


def _array(host: Host, path: PurePosixPath) -> Array:
    try:
        words = {name: optional_text(host, path / "md" / name)[:20] for name in ("level", "array_state", "sync_action")}
        return Array(
            path.name,
            words["level"],
            words["array_state"],
            optional_count(host, path / "md/raid_disks") or 0,
            optional_count(host, path / "md/degraded") or 0,
            words["sync_action"],
            tuple(_members(host, path)),
        )
    except (OSError, ValueError) as error:
        return Array(path.name, error=error_line(error, path))


def _members(host: Host, path: PurePosixPath) -> Iterator[Member]:
    for entry in host.glob(f"{path}/md/dev-*")[:_MEMBERS]:
        device = entry.name.removeprefix("dev-")[:40]
        states = optional_text(host, entry / "state").split(",")
        yield Member(device, disk_of(host, device), faulty="faulty" in states)


def disk_of(host: Host, device: str) -> str:
    """The disk on which a partition lies, as the component that findings name."""
    if nvme := _NVME.fullmatch(device):
        return address_of(host, PurePosixPath("/sys/class/nvme", nvme[1])) or nvme[1]
    found = _PARTITION.fullmatch(device)
    return (found[1] or found[2]) if found else device
