"""PCIe replays of GPUs: packets that were sent again, more often than on a good link.

Source: nvmlDeviceGetPcieReplayCounter. The limit follows from the bit error rate that the PCIe specification allows, so
it grows with lanes and generation. pcie_link checks the width and gpu_link_speed the speed of the link.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.rules.counters import increase, keep

# Replays a minute that one lane may have, by generation: 2.5, 5, 8, 16, 32 and 64 GT/s.
_PER_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}


@dataclass(frozen=True, slots=True)
class Policy:
    """How many replays are too many."""

    allowed: float = 1.0  # times the rate that the specification allows for generation and lanes
    at_least: int = 10  # replays between two runs, below which the rate is chance


@dataclass(frozen=True, slots=True)
class Replays:
    """One GPU's replay counter, with generation and lanes of its link."""

    pci: str
    uuid: str
    at_s: float  # since boot
    replays: int
    generation: int  # the highest that GPU and slot support; an idle link runs slower
    lanes: int


def read(host: Host) -> tuple[Replays, ...]:
    at_s = host.boottime_s()
    found = []
    for gpu in answering(host, whole=True):
        replays = number(gpu, "pcie_replays")
        if replays is not None:
            generation, lanes = number(gpu, "pcie_generation_max"), number(gpu, "pcie_width")
            found.append(Replays(gpu.pci, gpu.uuid, at_s, replays, generation or 0, lanes or 0))
    if not found:
        raise Unavailable("no GPU here counts PCIe replays")
    return tuple(found)


def judge(now: tuple[Replays, ...], before: tuple[Replays, ...] | None, policy: Policy) -> Iterator[Finding]:
    earlier = {gpu.uuid: gpu for gpu in before or ()}
    for gpu in now:
        old = earlier.get(gpu.uuid)
        if old is None or gpu.at_s <= old.at_s:
            continue
        new, minutes = increase(old.replays, gpu.replays), (gpu.at_s - old.at_s) / 60
        limit = policy.allowed * _PER_LANE.get(gpu.generation, _PER_LANE[6]) * (gpu.lanes or 16)
        if new >= policy.at_least and new / minutes > limit:
            evidence: dict[str, Scalar] = {
                "new": new, "per_min": round(new / minutes, 2), "limit_per_min": round(limit, 2),
                "generation": gpu.generation, "lanes": gpu.lanes, "uuid": gpu.uuid,
            }  # fmt: skip
            yield Finding(gpu.pci, "gpu_pcie_replays", Severity.WARNING, evidence)


def next_state(before: tuple[Replays, ...] | None, now: tuple[Replays, ...]) -> tuple[Replays, ...]:
    return keep(before, now)


CHECK = Check(
    name="gpu_pcie",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_pcie_replays",),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
)
