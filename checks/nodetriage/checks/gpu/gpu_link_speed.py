"""GPUs at work whose PCIe link runs slower than board and slot support.

Source: nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration (what GPU and system support together)
and the clocks event reasons. An idle GPU sets its link to the lowest generation, which is no fault. pcie_link checks
the lanes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.rules.counters import keep

# nvmlClocksEventReason*: idle, or slowed by heat or a power brake (gpu_throttle reports it): no link at work is shown.
_NOT_AT_WORK = 0x1 | 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True, slots=True)
class Policy:
    """A single run can see a GPU at work just before its link speeds up."""

    slow_runs: int = 3  # runs in a row that must see the GPU at work and its link slow
    severity: Severity = Severity.MAJOR  # of a slow link
    by_slot: Severity = (
        Severity.WARNING
    )  # where several GPUs are slow and none was faster in this boot: a BIOS does that


@dataclass(frozen=True, slots=True)
class Speed:
    """One GPU's link; `generation` and `most` are PCIe generations."""

    pci: str
    uuid: str
    generation: int
    most: int
    busy: bool
    slow_runs: int = 0  # this and the next are kept from earlier runs
    best: int = 0  # generation in this boot


def read(host: Host) -> tuple[Speed, ...]:
    """Raises Unavailable where NVML reports for no GPU both its link and whether it is idle."""
    found = []
    for gpu in answering(host, whole=True):
        generation, most = number(gpu, "pcie_generation"), number(gpu, "pcie_generation_max")
        reasons = number(gpu, "clocks_event_reasons")
        if generation and most and reasons is not None:
            found.append(Speed(gpu.pci, gpu.uuid, generation, most, busy=not reasons & _NOT_AT_WORK))
    if not found:
        raise Unavailable("NVML reports for no GPU here both its PCIe generation and whether it is idle")
    return tuple(found)


def next_state(before: tuple[Speed, ...] | None, now: tuple[Speed, ...]) -> tuple[Speed, ...]:
    """The newest reading, with how many runs in a row saw the GPU at work and its link slow."""
    old = {gpu.uuid: gpu for gpu in before or ()}
    return keep(before, (_since(old.get(gpu.uuid), gpu) for gpu in now))


def _since(old: Speed | None, gpu: Speed) -> Speed:
    slow_runs, best = (old.slow_runs, old.best) if old else (0, 0)
    slow_runs = 0 if gpu.generation >= gpu.most else slow_runs + gpu.busy
    return replace(gpu, slow_runs=slow_runs, best=max(best, gpu.generation))


def judge(now: tuple[Speed, ...], before: tuple[Speed, ...] | None, policy: Policy) -> Iterator[Finding]:
    """A link that was slow at work stays a finding while the GPU idles: nothing shows that it is fast again."""
    here, known = {gpu.uuid for gpu in now}, next_state(before, now)
    slow = [gpu for gpu in known if gpu.slow_runs >= policy.slow_runs]
    # A BIOS or a retimer holds all slots of a board alike; one GPU that deviates from the others has a fault.
    by_slot = len(slow) > 1 and len({gpu.best for gpu in slow}) == 1 and all(gpu.best < gpu.most for gpu in known)
    for gpu in known:
        if gpu.uuid in here and gpu.slow_runs >= policy.slow_runs:
            evidence: dict[str, Scalar] = {
                "kind": "gpu", "generation": gpu.generation, "expected_generation": gpu.most, "looks": gpu.slow_runs,
                "uuid": gpu.uuid,
            }  # fmt: skip
            yield Finding(gpu.pci, "pcie_link_slow", policy.by_slot if by_slot else policy.severity, evidence)


CHECK = Check(
    name="gpu_link_speed",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("pcie_link_slow",),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    runs_needed=lambda policy: policy.slow_runs,
)
