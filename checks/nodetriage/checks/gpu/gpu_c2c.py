"""The links between GPU and Grace CPU (NVLink-C2C): links that are down, or slower than the others, and their errors.

Source: NVML's fields NVML_FI_DEV_C2C_LINK_*. Links that sleep to save power are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.rules.counters import increase, keep, per_hour


@dataclass(frozen=True, slots=True)
class Policy:
    """How many replays are too many."""

    replays_per_hour: float = 1000.0  # between two runs


@dataclass(frozen=True, slots=True)
class C2c:
    """All links of one GPU together; None where the driver does not report it."""

    pci: str
    uuid: str
    at_s: float  # since boot
    links: int
    down: int | None
    mbps_least: int | None
    mbps_most: int | None
    errors: int | None
    replays: int | None


def read(host: Host) -> tuple[C2c, ...]:
    at_s = host.boottime_s()
    names = ("c2c_down", "c2c_mbps_least", "c2c_mbps_most", "c2c_errors", "c2c_replays")
    found = []
    for gpu in answering(host, whole=True):
        links, *facts = (number(gpu, name) for name in ("c2c_count", *names))
        if links and any(fact is not None for fact in facts):
            found.append(C2c(gpu.pci, gpu.uuid, at_s, links, *facts))
    if not found:
        raise Unavailable("no GPU here reports links to a Grace CPU")
    return tuple(found)


def judge(now: tuple[C2c, ...], before: tuple[C2c, ...] | None, policy: Policy) -> Iterator[Finding]:
    earlier = {gpu.uuid: gpu for gpu in before or ()}
    for gpu in now:
        old = earlier.get(gpu.uuid)
        common: dict[str, Scalar] = {"links": gpu.links, "uuid": gpu.uuid}
        if gpu.down:
            yield Finding(gpu.pci, "gpu_c2c_down", Severity.MAJOR, {"down": gpu.down, **common})
        elif gpu.mbps_least is not None and gpu.mbps_most is not None and gpu.mbps_least < gpu.mbps_most:
            speeds = {"mbps_least": gpu.mbps_least, "mbps_most": gpu.mbps_most}
            yield Finding(gpu.pci, "gpu_c2c_down", Severity.MAJOR, {**speeds, **common})
        if old is None:
            continue
        if new := increase(old.errors, gpu.errors):
            yield Finding(gpu.pci, "gpu_c2c_errors", Severity.MAJOR, {"new": new, **common})
        elif (rate := per_hour(increase(old.replays, gpu.replays), gpu.at_s - old.at_s)) > policy.replays_per_hour:
            yield Finding(gpu.pci, "gpu_c2c_replays", Severity.WARNING, {"per_hour": round(rate, 1), **common})


def next_state(before: tuple[C2c, ...] | None, now: tuple[C2c, ...]) -> tuple[C2c, ...]:
    return keep(before, now)


CHECK = Check(
    name="gpu_c2c",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_c2c_down", "gpu_c2c_errors", "gpu_c2c_replays"),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    raise_after=2,
)
