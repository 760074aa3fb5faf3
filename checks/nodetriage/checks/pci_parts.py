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
    """`port` is the address of the bridge above it, "" at a root complex or in a virtual machine."""

    address: str
    kind: str  # gpu, nvswitch, nic, nvme
    port: str = ""


def pci_parts(host: Host) -> tuple[PciPart, ...]:
    """GPUs, NVSwitches, network adapters and NVMe disks, by address; without virtual functions."""
    found = []
    for device in host.pci_devices():
        kind = _kind(device)
        if kind and not host.exists(f"{FOLDER}/{device.address}/physfn"):
            found.append(PciPart(device.address, kind, port_above(host, device.address)))
    return tuple(found)


def port_above(host: Host, address: str) -> str:
    """The folder that holds the device's own under /sys/devices is the port's (Documentation/PCI/sysfs-pci.rst)."""
    try:
        above = host.link(f"{FOLDER}/{address}").parent.name.lower()
    except OSError:
        return ""  # a recorded tree without the links, or a device that went away while it was looked at
    return above if ADDRESS.fullmatch(above) else ""


def _kind(device: PciDevice) -> str:
    kind = _KINDS.get(device.class_code >> 8, "")
    return "" if kind in _OF_NVIDIA and device.vendor != _NVIDIA else kind
