"""GPUs as NVML describes them (NVML API reference; `Host.gpus`), and their values that are whole numbers."""

from nodetriage.checks.model import Gpu, Host, NvmlFailure, PciDevice, Unavailable

_STUBS = ("pci-stub", "pciback", "xen-pciback")


def set_aside(host: Host, device: PciDevice) -> str:
    """The driver that keeps the device for a virtual machine (vfio-pci, its variants, a stub); "" for any other."""
    driver = host.pci_driver(device) or ""
    return driver if "vfio" in driver or driver in _STUBS else ""


def answering(host: Host, whole: bool = False) -> tuple[Gpu, ...]:
    """GPUs that answered; the run excludes the others, which gpu_lost reports. Raises Unavailable where none answered.

    A GPU with MIG is one GPU here: NVML gives errors, links and temperatures for the whole board.
    """
    gpus = []
    for gpu in host.gpus(whole):
        if gpu.failure is None and gpu.uuid:
            gpus.append(gpu)
        elif gpu.failure is not NvmlFailure.EXCLUDED:
            host.exclude(gpu.pci)
    if not gpus:
        raise Unavailable("no GPU here answers NVML")
    return tuple(gpus)


def number(gpu: Gpu, fact: str, least: int = 0) -> int | None:
    """A fact as a whole number; None where NVML has no value. Raises ValueError for no number or a lower one."""
    value = gpu.facts.get(fact)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise ValueError(f"{gpu.pci}: {fact}: expected a whole number from {least} on, got {value!r}")
