"""The disks and RAID sets of this node, with the health data of each disk.

/sys/class/nvme/nvmeN/state (drivers/nvme/host/core.c), /sys/block/sd*, and /sys/block/mdN/md/degraded, the number of
missing members (Documentation/admin-guide/md.rst). smart.py asks the disks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.smart import Smart, ask
from nodetriage.checks.readers.sysfs import error_line, optional_count, optional_text

_PATIENCE = 2  # disks that may time out before the others are no longer asked


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk or RAID set. `component` is the PCI address of an NVMe disk, else the kernel's name.

    `error` is set where the disk was not asked or gave no health data; `missing` names a tool that is not installed.
    """

    component: str
    device: str
    state: str = ""  # of an NVMe controller: live, resetting, dead, ...
    smart: Smart | None = None
    missing_members: int = 0  # of a RAID set
    error: str = ""
    missing: str = ""


def read_disks(host: Host) -> tuple[Disk, ...]:
    """NVMe and SCSI disks with their health data, and RAID sets."""
    disks = [*_nvme(host), *_others(host)]
    arrays = [
        Disk(p.name, f"/dev/{p.name}", missing_members=optional_count(host, p / "md/degraded") or 0)
        for p in host.glob("/sys/block/md*")
    ]
    asked, late = [], 0
    for disk in disks:
        asked.append(
            _asked(host, disk) if late < _PATIENCE else replace(disk, error="not asked: other disks did not answer")
        )
        late += asked[-1].error.endswith("did not answer in its time")
    return (*asked, *arrays)


def _nvme(host: Host) -> Iterator[Disk]:
    for path in host.glob("/sys/class/nvme/nvme*"):
        component = address_of(host, path) or path.name
        yield Disk(component, f"/dev/{path.name}", optional_text(host, path / "state")[:20])


def _others(host: Host) -> Iterator[Disk]:
    return (Disk(path.name, f"/dev/{path.name}") for path in host.glob("/sys/block/sd*"))


def _asked(host: Host, disk: Disk) -> Disk:
    if disk.state == "dead":
        return disk
    try:
        return replace(disk, smart=ask(host, disk.device))
    except Unavailable as error:
        return replace(disk, missing=str(error))
    except TimeoutError:
        return replace(disk, error=f"{disk.device} did not answer in its time")
    except (OSError, ValueError, OverflowError) as error:
        # Virtual disks and card readers have no SMART, so only an NVMe disk without an answer is an error.
        return replace(disk, error=error_line(error, disk.device)) if disk.device.startswith("/dev/nvme") else disk
