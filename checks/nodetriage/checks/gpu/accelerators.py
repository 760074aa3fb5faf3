"""AMD GPUs, by what their driver counts; accelerators of other makers are found, and not looked at.

Source: readers/amdgpu.py names it. The checks of the kernel log judge what the driver logs of resets and errors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.amdgpu import AMD, BadPages, Ras, accelerators, bad_pages, ras_counts
from nodetriage.checks.readers.gpu import set_aside
from nodetriage.checks.rules.counters import increase, per_hour


@dataclass(frozen=True, slots=True)
class Policy:
    """What is too much for an AMD GPU."""

    expected_amd: int = 0  # AMD GPUs that the node should have; 0: any number is right
    corrected_per_hour: float = 1000.0  # corrected errors of one block between two runs
    most_bad_pages: int = 64  # pages of memory out of use, from which on the GPU should be returned


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """One GPU. `driver` is "" where none is bound to it."""

    address: str
    driver: str
    ras: tuple[Ras, ...] = ()
    pages: BadPages | None = None


@dataclass(frozen=True, slots=True)
class Accelerators:
    at_s: float  # since boot
    gpus: tuple[AmdGpu, ...]
    ever: tuple[str, ...] = field(default=())  # kept from earlier runs: each address seen in this boot


def read(host: Host) -> Accelerators:
    """Excludes what it cannot judge. Raises Unavailable where that is all there is."""
    found, others = [], []
    for device in accelerators(host):
        if aside := set_aside(host, device):
            others.append(f"{device.address} (set aside: {aside})")
            continue
        driver = host.pci_driver(device) or ""
        ras = ras_counts(host, device.folder) if device.vendor == AMD and driver == "amdgpu" else ()
        if device.vendor != AMD or ras is None or (driver == "amdgpu" and not ras):
            others.append(f"{device.address} ({device.vendor:04x}:{device.device:04x}, driver {driver or 'none'})")
            host.exclude(device.address)
            continue
        found.append(AmdGpu(device.address, driver, ras, bad_pages(host, device.folder)))
    if not found:
        known = f"no check looks at {', '.join(others)}" if others else "no accelerator of another maker than NVIDIA"
        raise Unavailable(known)
    return Accelerators(host.boottime_s(), tuple(found), tuple(gpu.address for gpu in found))


def next_state(before: Accelerators | None, now: Accelerators) -> Accelerators:
    """A GPU that does not answer now keeps its counts."""
    old = {gpu.address: gpu for gpu in (before.gpus if before else ())}
    gpus = {**old, **{gpu.address: gpu for gpu in now.gpus}}
    return replace(now, gpus=tuple(gpus.values()), ever=tuple(sorted({*now.ever, *(before.ever if before else ())})))


def judge(now: Accelerators, before: Accelerators | None, policy: Policy) -> Iterator[Finding]:
    old = {gpu.address: gpu for gpu in (before.gpus if before else ())}
    if len(now.gpus) < policy.expected_amd:
        here: dict[str, Scalar] = {"on_bus": len(now.gpus), "expected": policy.expected_amd}
        yield Finding("gpus", "amd_gpu_missing", Severity.CRITICAL, here)
    for gpu in now.gpus:
        if not gpu.driver:
            yield Finding(gpu.address, "amd_gpu_unbound", Severity.MAJOR, {"driver": "none"})
        yield from _errors(gpu, old.get(gpu.address), now.at_s - (before.at_s if before else now.at_s), policy)
        yield from _pages(gpu, policy)


def _errors(gpu: AmdGpu, old: AmdGpu | None, waited_s: float, policy: Policy) -> Iterator[Finding]:
    """Counts from before the first look are the past."""
    known = {ras.block: ras for ras in (old.ras if old else gpu.ras)}
    for ras in gpu.ras:
        last = known.get(ras.block, ras)
        new = increase(last.uncorrected, ras.uncorrected)
        rate = per_hour(increase(last.corrected, ras.corrected), waited_s)
        if new:
            evidence: dict[str, Scalar] = {"block": ras.block, "new": new, "since_load": ras.uncorrected}
            yield Finding(gpu.address, "amd_gpu_uncorrected", Severity.MAJOR, evidence)
        if rate > policy.corrected_per_hour:
            yield Finding(
                f"{gpu.address}/{ras.block}", "amd_gpu_corrected_rate", Severity.WARNING, {"per_hour": round(rate, 1)}
            )


def _pages(gpu: AmdGpu, policy: Policy) -> Iterator[Finding]:
    pages = gpu.pages or BadPages()
    evidence: dict[str, Scalar] = {"reserved": pages.reserved, "pending": pages.pending, "failed": pages.failed}
    if pages.pending or pages.failed:
        yield Finding(gpu.address, "amd_gpu_pages_pending", Severity.MAJOR, evidence)
    if sum((pages.reserved, pages.pending, pages.failed)) >= policy.most_bad_pages:
        yield Finding(gpu.address, "amd_gpu_pages_many", Severity.MAJOR, evidence)


CHECK = Check(
    name="accelerators",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "amd_gpu_missing", "amd_gpu_unbound", "amd_gpu_uncorrected", "amd_gpu_corrected_rate", "amd_gpu_pages_pending",
        "amd_gpu_pages_many",
    ),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    wakes_on=("udev:pci",),
)  # fmt: skip
