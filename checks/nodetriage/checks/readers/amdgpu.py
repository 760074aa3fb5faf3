"""Accelerators on the PCI bus that NVML does not know, and what amdgpu counts of AMD's.

Source: /sys/bus/pci/devices (classes of include/linux/pci_ids.h), and of amdgpu's device folder `ras/*_err_count` and
`ras/gpu_vram_bad_pages` (drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c; Documentation/gpu/amdgpu/ras.rst).
"""

import re
from collections import Counter
from dataclasses import dataclass

from nodetriage.checks.model import NVIDIA, Host, PciDevice

AMD, INTEL, HABANA = 0x1002, 0x8086, 0x1DA3
_ACCELERATOR = 0x12  # base class: processing accelerator, as MI300 and Gaudi
_DISPLAY_OTHER, _3D, _VGA = 0x0380, 0x0302, 0x0300
_COUNT = re.compile(r"(ue|ce|de):\s*(\d{1,20})")
_PAGE = re.compile(r"0x[0-9a-fA-F]{1,16} : 0x[0-9a-fA-F]{1,16} : ([RPF])")
_BUSY = "Query currently inaccessible"  # while the GPU is reset


@dataclass(frozen=True, slots=True)
class Ras:
    """What amdgpu counted in one block of a GPU since it was loaded."""

    block: str  # umc (memory), gfx, sdma, xgmi_wafl (links to the other GPUs) ...
    uncorrected: int
    corrected: int
    deferred: int


@dataclass(frozen=True, slots=True)
class BadPages:
    """Pages of a GPU's memory that are out of use: reserved, to be reserved at the next load, or not reservable."""

    reserved: int = 0
    pending: int = 0
    failed: int = 0


def accelerators(host: Host) -> list[PciDevice]:
    """All but NVIDIA's, without virtual functions and without the display of a board or of a CPU."""
    return [d for d in host.pci_devices() if d.vendor != NVIDIA and not d.is_virtual and _is_accelerator(host, d)]


def _is_accelerator(host: Host, device: PciDevice) -> bool:
    if device.class_code >> 16 == _ACCELERATOR or device.vendor == HABANA:
        return True
    if device.vendor not in (AMD, INTEL) or device.address.startswith("0000:00:"):
        return False
    kind = device.class_code >> 8
    return kind in (_DISPLAY_OTHER, _3D) or (kind == _VGA and host.exists(f"{device.folder}/ras"))


def ras_counts(host: Host, folder: str) -> tuple[Ras, ...] | None:
    """By block; None while the driver cannot ask the GPU. Raises ValueError for a file that holds no counts."""
    found = []
    for path in host.glob(f"{folder}/ras/*_err_count"):
        text = host.text(path)
        if text.startswith(_BUSY):
            return None
        counts = {kind: int(count) for kind, count in _COUNT.findall(text)}
        if "ue" not in counts or "ce" not in counts:
            raise ValueError(f"{path}: expected lines 'ue: N' and 'ce: N', got {text[:40]!r}")
        block = path.name.removesuffix("_err_count")
        found.append(Ras(block, counts["ue"], counts["ce"], counts.get("de", 0)))
    return tuple(found)


def bad_pages(host: Host, folder: str) -> BadPages | None:
    """None where the driver has no such file."""
    try:
        text = host.text(f"{folder}/ras/gpu_vram_bad_pages")
    except FileNotFoundError:
        return None
    flags = Counter(_PAGE.findall(text))
    return BadPages(flags["R"], flags["P"], flags["F"])
