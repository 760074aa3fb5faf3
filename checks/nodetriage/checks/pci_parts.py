"""The PCI devices that matter to jobs, each with the port it hangs on."""

import re
from dataclasses import dataclass

from nodetriage.checks.model import Host, PciDevice

FOLDER = "/sys/bus/pci/devices"
_NVIDIA = 0x10DE
# By base class and subclass (include/linux/pci_ids.h).
_KINDS = {0x0108: "nvme", 0x0200: "nic", 0x0207: "nic", 0x0300: "gpu", 0x0302: "gpu", 0x0680: "nvswitch"}
_OF_NVIDIA = ("gpu", "nvswitch")  # of other makers these are the BMC's screen, and bridges
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class PciPart:
    """`port` is the address of the bridge above it, "" at a root complex or in a virtual machine.

    The folders lie under /sys/devices, where no link has to be followed for each file.
    """

    address: str
    kind: str  # gpu, nvswitch, nic, nvme
    folder: str
    port: str = ""
    port_folder: str = ""


def pci_parts(host: Host) -> tuple[PciPart, ...]:
    """GPUs, NVSwitches, network adapters and NVMe disks, by address; without virtual functions."""
    found = []
    for device in host.pci_devices():
        if (kind := _kind(device)) and (part := _part(host, device.address, kind)):
            found.append(part)
    return tuple(found)


def _part(host: Host, address: str, kind: str) -> PciPart | None:
    """None for a virtual function. The folder above the device's is its port's (Documentation/PCI/sysfs-pci.rst)."""
    folder = f"{FOLDER}/{address}"
    try:
        place = host.link(folder)
    except OSError:  # a recorded tree without the links, or a device that went away while it was looked at
        return None if host.exists(f"{folder}/physfn") else PciPart(address, kind, folder)
    if host.exists(place / "physfn"):
        return None
    above = place.parent.name.lower()
    if not ADDRESS.fullmatch(above):
        return PciPart(address, kind, str(place))
    return PciPart(address, kind, str(place), above, str(place.parent))


def _kind(device: PciDevice) -> str:
    kind = _KINDS.get(device.class_code >> 8, "")
    return "" if kind in _OF_NVIDIA and device.vendor != _NVIDIA else kind
