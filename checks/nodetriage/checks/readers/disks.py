"""The disks of this node, with the health data of each.

/sys/class/nvme/nvmeN/state and transport (drivers/nvme/host/sysfs.c), /sys/block/sd*. smart.py asks the disks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.pci import address_of
from nodetriage.checks.readers.smart import Smart, ask
from nodetriage.checks.readers.sysfs import error_line, optional_text

_NVME = "/sys/class/nvme"
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
