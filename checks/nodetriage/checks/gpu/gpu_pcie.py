"""PCIe errors that GPUs count: packets sent again more often than on a good link, and all errors where AER is hidden.

Source: nvmlDeviceGetPcieReplayCounter; rules/gpu/pcie_counts.py for the others. The limit of replays follows from the
bit error rate that the PCIe specification allows, so it grows with lanes and generation. pcie_link checks the width and
gpu_link_speed the speed of the link.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.rules.counters import increase, keep
from nodetriage.checks.rules.gpu import pcie_counts
from nodetriage.checks.rules.gpu.load import is_idle, lacks_load

# Replays a minute that one lane may have, by generation: 2.5, 5, 8, 16, 32 and 64 GT/s.
_PER_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}


@dataclass(frozen=True, slots=True)
class Policy:
    """How many replays are too many."""

    allowed: float = 1.0  # times the rate that the specification allows for generation and lanes
    at_least: int = 10  # replays between two runs, below which the rate is chance
    errors_per_hour: float = 100.0  # corrected errors of one kind between two runs, where AER is hidden


@dataclass(frozen=True, slots=True)
class Replays:
    """One GPU's replay counter, with generation and lanes of its link."""

    pci: str
    uuid: str
    at_s: float  # since boot
    replays: int
    generation: int  # the highest that GPU and slot support; an idle link runs slower
    lanes: int
    idle: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)  # by kind; empty where pcie_aer reads them
    new: int = 0  # kept from the last look with load: replays since the look before it
    waited_s: float = 0.0  # and in how long


def read(host: Host) -> tuple[Replays, ...]:
    at_s = host.boottime_s()
    found = []
    for gpu in answering(host, whole=True):
        replays = number(gpu, "pcie_replays")
        if replays is not None:
            generation, lanes = number(gpu, "pcie_generation_max"), number(gpu, "pcie_width")
            errors = pcie_counts.read(host, gpu)
            found.append(Replays(gpu.pci, gpu.uuid, at_s, replays, generation or 0, lanes or 0, is_idle(gpu), errors))
    if not found:
        raise Unavailable("no GPU here counts PCIe replays")
    return tuple(found)


def next_state(before: tuple[Replays, ...] | None, now: tuple[Replays, ...]) -> tuple[Replays, ...]:
    old = {gpu.uuid: gpu for gpu in before or ()}
    return keep(before, (_with_growth(old.get(gpu.uuid), gpu) for gpu in now))


def _with_growth(old: Replays | None, gpu: Replays) -> Replays:
    """A storm of replays that load brought is over at a look with load and without it."""
    if old is None or gpu.at_s <= old.at_s:
        return gpu
    new, waited_s = increase(old.replays, gpu.replays), gpu.at_s - old.at_s
    if lacks_load(old.idle, gpu.idle) and gpu.replays >= old.replays and new * old.waited_s < old.new * waited_s:
        return replace(gpu, new=old.new, waited_s=old.waited_s)
    return replace(gpu, new=new, waited_s=waited_s)


def judge(now: tuple[Replays, ...], before: tuple[Replays, ...] | None, policy: Policy) -> Iterator[Finding]:
    earlier, here = {gpu.uuid: gpu for gpu in before or ()}, {gpu.uuid for gpu in now}
    for gpu in next_state(before, now):
        old = earlier.get(gpu.uuid)
        if old is None or gpu.uuid not in here or gpu.at_s <= old.at_s:
            continue
        minutes = gpu.waited_s / 60
        limit = policy.allowed * _PER_LANE.get(gpu.generation, _PER_LANE[6]) * (gpu.lanes or 16)
        if gpu.new >= policy.at_least and gpu.new / minutes > limit:
            evidence: dict[str, Scalar] = {
                "new": gpu.new, "per_min": round(gpu.new / minutes, 2), "limit_per_min": round(limit, 2),
                "generation": gpu.generation, "lanes": gpu.lanes, "uuid": gpu.uuid,
            }  # fmt: skip
            yield Finding(gpu.pci, "gpu_pcie_replays", Severity.WARNING, evidence)
        yield from pcie_counts.judge(
            gpu.pci, gpu.uuid, old.errors, gpu.errors, gpu.at_s - old.at_s, policy.errors_per_hour
        )


CHECK = Check(
    name="gpu_pcie",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_pcie_replays", "gpu_pcie_errors", "gpu_pcie_uncorrected"),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
)
