"""The disks of this node, with the health data of each.

/sys/class/nvme/nvmeN/state and transport (drivers/nvme/host/sysfs.c), /sys/block/sd*. smart.py asks the disks.
What the kernel's names in a log line stand for is in /sys/class/block, /sys/class/scsi_device and /sys/class/ata_port.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.smart import Smart, ask
from nodetriage.checks.readers.sysfs import error_line, optional_text

_NVME = "/sys/class/nvme"
_NVME_NAME = re.compile(r"(nvme\d+)(?:c\d+)?(?:n\d+)?(?:p\d+)?")
_PARTITION = re.compile(r"((?:sd|vd|xvd|hd)[a-z]{1,4})\d{1,3}|((?:mmcblk|loop|nbd|md|rbd|pmem)\d{1,4})p\d{1,3}")
_SCSI = re.compile(r"scsi (\d+:\d+:\d+:\d+) ([\w-]*)")
_ATA = re.compile(r"(ata\d+)(?:\.\d\d)?")
_REDUNDANT = frozenset(("raid1", "raid4", "raid5", "raid6", "raid10"))
_FOLDERS = ("/sys/class/block", "/sys/class/scsi_device", "/sys/class/ata_port")
_PATIENCE = 2  # disks that may time out before the others are no longer asked


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk. `component` is the PCI address of an NVMe disk, else the kernel's name.

    `error` is set where the disk was not asked or gave no health data; `missing` names a tool that is not installed.
    """

    component: str
    device: str
    state: str = ""  # of an NVMe controller: live, resetting, dead, ...
    smart: Smart | None = None
    error: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Controller:
    """One NVMe controller. `component` is its PCI address, else (over a network) its name."""

    component: str
    name: str
    at_s: float  # CLOCK_BOOTTIME of the reading
    state: str = ""  # new, live, resetting, connecting, deleting, dead
    transport: str = ""  # pcie, tcp, rdma, fc, loop
    passing_since_s: float | None = None  # kept from earlier runs: since when it resets or connects


def read_controllers(host: Host) -> tuple[Controller, ...]:
    """All NVMe controllers, by name. Only the state of one changes while it is there."""
    at_s = host.boottime_s()
    return tuple(
        Controller(component, name, at_s, optional_text(host, f"{_NVME}/{name}/state")[:20], transport)
        for name, (component, transport) in host.entries(_NVME, _described).items()
        if name.startswith("nvme")
    )


def _described(host: Host, path: PurePosixPath) -> tuple[str, str]:
    return address_of(host, path) or path.name, optional_text(host, path / "transport")[:20]


def read_disks(host: Host) -> tuple[Disk, ...]:
    """NVMe and SCSI disks with their health data."""
    disks = [*_nvme(host), *_others(host)]
    asked, late = [], 0
    for disk in disks:
        asked.append(
            _asked(host, disk) if late < _PATIENCE else replace(disk, error="not asked: other disks did not answer")
        )
        late += asked[-1].error.endswith("did not answer in its time")
    return tuple(asked)


def _nvme(host: Host) -> Iterator[Disk]:
    for path in host.glob("/sys/class/nvme/nvme*"):
        component = address_of(host, path) or path.name
        yield Disk(component, f"/dev/{path.name}", optional_text(host, path / "state")[:20])


def _others(host: Host) -> Iterator[Disk]:
    return (Disk(path.name, f"/dev/{path.name}") for path in host.glob("/sys/block/sd*"))


def _asked(host: Host, disk: Disk) -> Disk:
    if disk.state not in ("", "live"):  # it does not answer now; disk_state reports it
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


def disk_of(name: str) -> str:
    """The kernel's name of the disk, or of the NVMe controller, to which a block device belongs."""
    if found := _NVME_NAME.fullmatch(name):
        return found[1]
    found = _PARTITION.fullmatch(name)
    return (found[1] or found[2]) if found else name


def named(host: Host, component: str) -> str:
    """The disk for what a line names: a SCSI address, an ATA port or a partition. An NVMe disk that is here has its
    PCI address."""
    if found := _SCSI.fullmatch(component):
        blocks = host.glob(f"/sys/class/scsi_device/{found[1]}/device/block/*") if not found[2] else []
        return disk_of(found[2]) or (blocks[0].name if blocks else found[1])
    if found := _ATA.fullmatch(component):
        return next((p.name for p in host.glob("/sys/block/sd*") if f"/{found[1]}/" in f"{_path(host, p)}/"), found[1])
    disk = disk_of(component)
    return (address_of(host, PurePosixPath("/sys/class/nvme", disk)) or disk) if _NVME_NAME.fullmatch(disk) else disk


def _path(host: Host, entry: PurePosixPath) -> str:
    try:
        return str(host.link(entry))
    except OSError:
        return ""


def is_removable(host: Host, disk: str) -> bool:
    """Whether it is a stick, a card reader or the BMC's virtual medium: not the node's own disk."""
    if any(part.startswith("usb") for part in PurePosixPath(_path(host, PurePosixPath("/sys/block", disk))).parts):
        return True
    try:
        return host.text(f"/sys/block/{disk}/removable") == "1"
    except OSError:
        return False


def is_spared(host: Host, disk: str) -> bool:
    """Whether the disk is a member of RAID sets only that go on without it (/sys/block/mdN/md/level)."""
    holders = host.glob(f"/sys/class/block/{disk}*/holders/md*")
    try:
        return bool(holders) and all(host.text(f"/sys/block/{p.name}/md/level") in _REDUNDANT for p in holders)
    except OSError:
        return False


def read_names(host: Host) -> tuple[str, ...] | None:
    """The names of all block devices, controllers and ports, and "nvme1=PCI address" for each NVMe controller.

    None where the machine does not say what block devices it has.
    """
    names = [path.name for folder in _FOLDERS for path in host.glob(f"{folder}/*")]
    if not names:
        return None
    controllers = host.entries("/sys/class/nvme", _address)
    return (*names, *controllers, *(f"{name}={address}" for name, address in controllers.items() if address))


def _address(host: Host, path: PurePosixPath) -> str:
    return address_of(host, path)


def addresses(names: tuple[str, ...] | None) -> dict[str, str]:
    """The PCI address by the name of an NVMe controller, from what `read_names` gave."""
    return dict(name.split("=", 1) for name in names or () if "=" in name)
