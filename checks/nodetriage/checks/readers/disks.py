"""The disks of this node and its RAID sets (Documentation/admin-guide/md.rst), and what they say of their health."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.pci import ADDRESS
from nodetriage.checks.readers.smart import Smart, ask
from nodetriage.checks.readers.sysfs import count_if_told, text_if_told, told

_PATIENCE = 2  # disks that may run into their time limit before the rest is not asked any more


@dataclass(frozen=True, slots=True)
class Disk:
    """`component` is an NVMe disk's PCI address, else the kernel's name. `missing` is a tool that is not installed."""

    component: str
    device: str
    state: str = ""  # of an NVMe controller: live, resetting, dead, ...
    smart: Smart | None = None
    missing_members: int = 0  # of a RAID set
    error: str = ""
    missing: str = ""


def read_disks(host: Host) -> tuple[Disk, ...]:
    """NVMe and SCSI disks with what they say of their health, and RAID sets."""
    disks = [*_nvme(host), *_others(host)]
    arrays = [
        Disk(p.name, f"/dev/{p.name}", missing_members=count_if_told(host, p / "md/degraded") or 0)
        for p in host.glob("/sys/block/md*")
    ]
    asked, late = [], 0
    for disk in disks:
        asked.append(
            _asked(host, disk) if late < _PATIENCE else replace(disk, error="not asked: others did not answer")
        )
        late += asked[-1].error.endswith("did not answer in its time")
    return (*asked, *arrays)


def _nvme(host: Host) -> Iterator[Disk]:
    for path in host.glob("/sys/class/nvme/nvme*"):
        try:
            address = host.link(path / "device").name.lower()
        except OSError:
            address = ""
        component = address if ADDRESS.fullmatch(address) else path.name
        yield Disk(component, f"/dev/{path.name}", text_if_told(host, path / "state")[:20])


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
        # Virtual disks and card readers have no SMART: of those that are no NVMe only what they do say counts.
        return replace(disk, error=told(error, disk.device)) if disk.device.startswith("/dev/nvme") else disk
