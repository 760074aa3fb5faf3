"""GPUs as NVML describes them (NVML API reference; `Host.gpus`), and the numbers among what it tells of each."""

from nodetriage.checks.model import Gpu, Host, Unavailable


def answering(host: Host, whole: bool = False) -> tuple[Gpu, ...]:
    """GPUs that answered. The others are gpu_lost's, and named as not looked at. Raises Unavailable where none did.

    A GPU with MIG is here as itself: errors, links and temperatures are the parent's.
    """
    gpus = []
    for gpu in host.gpus(whole):
        if gpu.failure is None and gpu.uuid:
            gpus.append(gpu)
        else:
            host.exclude(gpu.pci)
    if not gpus:
        raise Unavailable("no GPU here answers NVML")
    return tuple(gpus)


def number(gpu: Gpu, fact: str, least: int = 0) -> int | None:
    """A fact as a whole number; None where NVML does not know it. Raises ValueError for what cannot be one."""
    value = gpu.facts.get(fact)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise ValueError(f"{gpu.pci}: {fact}: expected a whole number from {least} on, got {value!r}")
