"""Repairs of GPU memory and of processing clusters that wait for a reset, and memory that nothing repairs any more.

Source: nvmlDeviceGetRepairStatus, nvmlDeviceGetUnrepairableMemoryFlag, and NVML's fields of the bank remapper
(NVML_FI_DEV_*_BANK_REMAPPING*, since Blackwell). gpu_remap looks at rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Gpu, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number

_FACTS = (
    "repair_pending_channel", "repair_pending_tpc", "memory_unrepairable", "bank_remap_pending", "banks_remapped",
    "banks_inactive", "banks_without_spares",
)  # fmt: skip
_ROWS = ("rows_inactive_correctable", "rows_inactive_uncorrectable")


@dataclass(frozen=True, slots=True)
class Policy:
    """When a lack of spare banks is a fault."""

    without_spares: int = 1  # places of the memory that have no spare bank left


@dataclass(frozen=True, slots=True)
class Repairs:
    """Of one GPU; None where this driver or board does not report it."""

    pci: str
    uuid: str
    rows_inactive: int | None = None
    channel_pending: int | None = None
    tpc_pending: int | None = None
    unrepairable: int | None = None
    bank_pending: int | None = None
    remapped: int | None = None
    inactive: int | None = None
    without_spares: int | None = None


def read(host: Host) -> tuple[Repairs, ...]:
    found = tuple(repairs for gpu in answering(host, whole=True) if (repairs := _repairs(gpu)))
    if not found:
        raise Unavailable("no GPU here reports repairs of its memory")
    return found


def _repairs(gpu: Gpu) -> Repairs | None:
    facts = [number(gpu, fact) for fact in _FACTS]
    rows = [count for fact in _ROWS if (count := number(gpu, fact)) is not None]
    if all(fact is None for fact in facts):
        return None
    return Repairs(gpu.pci, gpu.uuid, sum(rows) if rows else None, *facts)


def judge(now: tuple[Repairs, ...], before: tuple[Repairs, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        known = {
            "banks_remapped": gpu.remapped, "banks_inactive": gpu.inactive, "rows_inactive": gpu.rows_inactive,
        }  # fmt: skip
        evidence: dict[str, Scalar] = {name: count for name, count in known.items() if count is not None}
        evidence["uuid"] = gpu.uuid
        if gpu.unrepairable:
            yield Finding(gpu.pci, "gpu_memory_unrepairable", Severity.CRITICAL, evidence)
        waits = {"channel": gpu.channel_pending, "tpc": gpu.tpc_pending, "bank": gpu.bank_pending}
        if parts := [name for name, pending in waits.items() if pending]:
            yield Finding(gpu.pci, "gpu_repair_pending", Severity.MAJOR, {"parts": ",".join(parts), **evidence})
        if (gpu.without_spares or 0) >= policy.without_spares:
            spares = {"without_spares": gpu.without_spares or 0}
            yield Finding(gpu.pci, "gpu_bank_spares_gone", Severity.WARNING, {**spares, **evidence})


CHECK = Check(
    name="gpu_repair",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_memory_unrepairable", "gpu_repair_pending", "gpu_bank_spares_gone"),
    worker="gpu",
    timeout_s=10,
)
