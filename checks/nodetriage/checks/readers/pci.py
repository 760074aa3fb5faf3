"""The PCI devices that jobs use, each with the port above it.

/sys/bus/pci/devices (Documentation/ABI/testing/sysfs-bus-pci, Documentation/PCI/sysfs-pci.rst); class codes of
include/linux/pci_ids.h.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodetriage.checks.model import NVIDIA, Host, PciDevice

FOLDER = "/sys/bus/pci/devices"
# By base class and subclass.
_KINDS = {0x0108: "nvme", 0x0200: "nic", 0x0207: "nic", 0x0300: "gpu", 0x0302: "gpu", 0x0680: "nvswitch"}
_OF_NVIDIA = ("gpu", "nvswitch")  # from other makers these are the BMC's display, and bridges
_SWITCHED_GPUS = (0x2901, 0x3182)  # B200 and B300 on HGX boards
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class PciPart:
    """One function. `port` is the address of the bridge above it, "" at a root complex or in a virtual machine.

    Both folders lie under /sys/devices, so that no read follows a link.
    """

    address: str
    kind: str  # gpu, nvswitch, nic, nvme
    folder: str
    port: str = ""
    port_folder: str = ""


def pci_parts(host: Host) -> tuple[PciPart, ...]:
    """GPUs, NVSwitches, network adapters and NVMe disks, by address; without virtual functions."""
    return tuple(_part(d, kind) for d in host.pci_devices() if not d.is_virtual and (kind := _kind(d)))


def address_of(host: Host, entry: PurePosixPath) -> str:
    """The PCI address of the device to which an entry of /sys/class belongs; "" where it is on no PCI bus."""
    try:
        name = host.link(entry / "device").name.lower()
    except OSError:
        return ""
    return name if ADDRESS.fullmatch(name) else ""


def _part(device: PciDevice, kind: str) -> PciPart:
    """The folder above the device's is its port's (Documentation/PCI/sysfs-pci.rst)."""
    above = device.folder.rpartition("/")[0]
    port = above.rpartition("/")[2].lower()
    if not ADDRESS.fullmatch(port):
        return PciPart(device.address, kind, device.folder)
    return PciPart(device.address, kind, device.folder, port, above)


def _kind(device: PciDevice) -> str:
    kind = _KINDS.get(device.class_code >> 8, "")
    return "" if kind in _OF_NVIDIA and device.vendor != NVIDIA else kind


def has_nvswitches(host: Host) -> bool:
    """Whether this machine has NVSwitches: on PCI, or behind GPUs of a board whose switches are not on PCI."""
    devices = host.pci_devices()
    return any(_kind(d) == "nvswitch" or (d.is_nvidia_gpu and d.device in _SWITCHED_GPUS) for d in devices)
