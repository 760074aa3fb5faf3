"""The PCI devices that jobs use, and each link between them and their root complex.

/sys/bus/pci/devices (Documentation/ABI/testing/sysfs-bus-pci, Documentation/PCI/sysfs-pci.rst); class codes of
include/linux/pci_ids.h.
"""

import functools
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodetriage.checks.model import NVIDIA, Host, PciDevice, Scalar

FOLDER = "/sys/bus/pci/devices"
# By base class and subclass.
_KINDS = {0x0108: "nvme", 0x0200: "nic", 0x0207: "nic", 0x0300: "gpu", 0x0302: "gpu", 0x0680: "nvswitch"}
_OF_NVIDIA = ("gpu", "nvswitch")  # from other makers these are the BMC's display, and bridges
_SWITCHED_GPUS = (0x2901, 0x3182)  # B200 and B300 on HGX boards
_NAMED = 32  # devices behind one link; a node has fewer
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class PciPart:
    """One function. Its folder lies under /sys/devices, so that no read follows a link."""

    address: str
    kind: str  # gpu, nvswitch, nic, nvme
    folder: str


@dataclass(frozen=True, slots=True)
class Hop:
    """One link. Its upper end is a root port or a downstream port of a switch; "" at a root complex without one.

    Its lower end is the function of a device, or the upstream port of a switch (kind "switch"). Of the functions of
    one device the first stands for all.
    """

    address: str
    kind: str
    folder: str
    functions: tuple[str, ...]  # folders of all functions at the lower end that jobs use, or of the upstream port
    port: str = ""
    port_folder: str = ""
    behind: tuple[str, ...] = ()  # addresses of the functions whose traffic crosses the link


def pci_parts(host: Host) -> tuple[PciPart, ...]:
    """GPUs, NVSwitches, network adapters and NVMe disks, by address; without virtual functions."""
    return tuple(
        PciPart(d.address, kind, d.folder) for d in host.pci_devices() if not d.is_virtual and (kind := _kind(d))
    )


def address_of(host: Host, entry: PurePosixPath) -> str:
    """The PCI address of the device to which an entry of /sys/class belongs; "" where it is on no PCI bus."""
    try:
        name = host.link(entry / "device").name.lower()
    except OSError:
        return ""
    return name if ADDRESS.fullmatch(name) else ""


@functools.lru_cache(maxsize=8)
def hops(parts: tuple[PciPart, ...]) -> tuple[Hop, ...]:
    """Each link between the parts and their root complex, once, by the address of its lower end. Pure.

    The folder above a device's is its port's (Documentation/PCI/sysfs-pci.rst). A port of a switch is either an
    upstream port, which ends the link to the port above it, or a downstream port, which begins the next link.
    """
    found: dict[str, Hop] = {}
    for part in parts:
        chain = _chain(part.folder)
        for below, above in zip(chain[::2], (*chain[1::2], ""), strict=False):
            key = below.rpartition(".")[0]  # the functions of a device share its link
            known = found.get(key) or _hop(below, above, part.kind if below == part.folder else "switch")
            functions = (*known.functions, below) if below not in known.functions else known.functions
            found[key] = replace(known, functions=functions, behind=(*known.behind, part.address))
    return tuple(sorted(found.values(), key=lambda hop: hop.address))


def behind(hop: str, devices: tuple[str, ...]) -> dict[str, Scalar]:
    """The devices behind the link whose lower end is `hop`, as evidence; empty where that is the only one."""
    return {} if devices in ((), (hop,)) else {"behind": " ".join(devices[:_NAMED])}


def _hop(below: str, above: str, kind: str) -> Hop:
    return Hop(_name(below), kind, below, (), _name(above), above)


def _chain(folder: str) -> tuple[str, ...]:
    """The folders of a device and of all bridges above it, without a bridge of a conventional PCI bus at the top."""
    found = []
    while ADDRESS.fullmatch(_name(folder)):
        found.append(folder)
        folder = folder.rpartition("/")[0]
    return tuple(found[:-1] if len(found) > 1 and len(found) % 2 else found)


def _name(folder: str) -> str:
    return folder.rpartition("/")[2].lower()


def _kind(device: PciDevice) -> str:
    kind = _KINDS.get(device.class_code >> 8, "")
    return "" if kind in _OF_NVIDIA and device.vendor != NVIDIA else kind


def has_nvswitches(host: Host) -> bool:
    """Whether this machine has NVSwitches: on PCI, or behind GPUs of a board whose switches are not on PCI."""
    devices = host.pci_devices()
    return any(_kind(d) == "nvswitch" or (d.is_nvidia_gpu and d.device in _SWITCHED_GPUS) for d in devices)
