"""The GPUs that the PCI bus has, those that NVML lists, and those that are set aside on purpose.

Source: /sys/bus/pci/devices, nvmlDeviceGetCount, nvmlGetExcludedDeviceInfoByIndex, and the driver's file of a GPU under
/proc/driver/nvidia/gpus (kernel-open/nvidia/nv-procfs.c).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetriage.checks.model import Host, NotRecorded, NvmlFailure, Unavailable
from nodetriage.checks.readers.gpu import set_aside

_LEFT_OUT = "nvidia, which leaves it out (NVreg_ExcludedGpus)"
_EXCLUDED = re.compile(r"^GPU Excluded:\s*Yes\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """One GPU in NVML's list; `failure` is set where it does not answer."""

    pci: str
    uuid: str
    failure: NvmlFailure | None
    text: str
    refused: tuple[str, ...] = ()  # calls that gave an unexpected error


@dataclass(frozen=True, slots=True)
class Inventory:
    """`bus` are PCI addresses, without virtual functions and without GPUs that are set aside."""

    bus: tuple[str, ...]
    nvml: tuple[Answer, ...] | None  # None: NVML is not available, and `why` says what is missing
    why: str = ""
    ever: tuple[str, ...] = ()  # kept from earlier runs: each address seen in this boot
    aside: Mapping[str, str] = field(default_factory=dict)  # address -> its driver, or that the driver leaves it out


def read(host: Host) -> Inventory:
    """NVIDIA GPUs on the bus, those that NVML lists, and those that are set aside on purpose."""
    gpus = [device for device in host.pci_devices() if device.is_nvidia_gpu and not device.is_virtual]
    aside = {gpu.address: driver for gpu in gpus if (driver := set_aside(host, gpu))}
    bus = tuple(gpu.address for gpu in gpus if gpu.address not in aside)
    try:
        listed = host.gpus()
    except NotRecorded:
        host.exclude("nvml")
        return Inventory(bus, None, "", bus, aside)
    except Unavailable as error:
        return Inventory(bus, None, str(error), bus, aside)
    aside |= {gpu.pci: _LEFT_OUT for gpu in listed if gpu.failure is NvmlFailure.EXCLUDED}
    aside |= {a: _LEFT_OUT for a in set(bus) - {gpu.pci for gpu in listed} if _is_left_out(host, a)}
    bus = tuple(address for address in bus if address not in aside)
    nvml = tuple(
        Answer(g.pci, g.uuid, g.failure, g.failure_text, tuple(g.refused)) for g in listed if g.pci not in aside
    )
    return Inventory(bus, nvml, "", bus, aside)


def _is_left_out(host: Host, address: str) -> bool:
    """Whether the driver says so of a GPU that NVML does not list, where NVML does not tell which it leaves out."""
    try:
        text = host.text(f"/proc/driver/nvidia/gpus/{address}/information")
    except FileNotFoundError:
        return False
    return bool(_EXCLUDED.search(text))
