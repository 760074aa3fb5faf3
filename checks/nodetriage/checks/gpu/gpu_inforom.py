"""GPUs whose InfoROM is corrupt: it holds the board's configuration, its ECC history and its retired rows.

Source: nvmlDeviceValidateInforom, which reads the flash memory and compares its checksums.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number


@dataclass(frozen=True, slots=True)
class Policy:
    """Jobs still run on a GPU with a corrupt InfoROM, but its error history is lost."""

    severity: Severity = Severity.WARNING  # of a corrupt InfoROM


@dataclass(frozen=True, slots=True)
class InfoRom:
    """NVML's answer for one GPU: 0, or the error code for a corrupt InfoROM."""

    pci: str
    uuid: str
    error: int


def read(host: Host) -> tuple[InfoRom, ...]:
    known = ((gpu, number(gpu, "inforom_error")) for gpu in answering(host, whole=True))
    found = tuple(InfoRom(gpu.pci, gpu.uuid, error) for gpu, error in known if error is not None)
    if not found:
        raise Unavailable("no GPU here has an InfoROM that can be checked")
    return found


def judge(now: tuple[InfoRom, ...], before: tuple[InfoRom, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        if gpu.error:
            yield Finding(gpu.pci, "gpu_inforom_corrupt", policy.severity, {"nvml_error": gpu.error, "uuid": gpu.uuid})


CHECK = Check(
    name="gpu_inforom",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_inforom_corrupt",),
    worker="gpu",
    every_s=3600,
    timeout_s=10,
)
