"""Memory errors that GPUs correct, where they are many: the memory wears, and correcting takes time.

Source: nvmlDeviceGetTotalEccErrors (volatile). Errors come with work, so a look at an idle GPU ends nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.readers.nvidia_log import xids
from nodetriage.checks.rules.counters import increase, keep
from nodetriage.checks.rules.gpu.load import is_idle, lacks_load

_RATE = ("gpu_ecc_corrected_rate", Severity.WARNING)
_FLOOD = ("gpu_ecc_corrected_flood", Severity.MAJOR)


@dataclass(frozen=True, slots=True)
class Policy:
    """Corrected errors between two runs. A healthy GPU corrects a few in its life."""

    per_hour: float = 1000.0  # more than this: gpu_ecc_corrected_rate
    flood_per_s: float = 100.0  # from this on: gpu_ecc_corrected_flood


@dataclass(frozen=True, slots=True)
class Corrected:
    """One GPU's count since the driver was loaded or the GPU was reset."""

    pci: str
    uuid: str
    at_s: float  # since boot
    count: int
    idle: bool
    new: int = 0  # kept from the last run in which the GPU had work: how much the count grew
    waited_s: float = 0.0  # and in how long


def read(host: Host) -> tuple[Corrected, ...]:
    at_s = host.boottime_s()
    known = ((gpu, number(gpu, "ecc_corrected_volatile")) for gpu in answering(host, whole=True))
    found = tuple(Corrected(g.pci, g.uuid, at_s, count, is_idle(g)) for g, count in known if count is not None)
    if not found:
        raise Unavailable("no GPU here counts corrected memory errors")
    return found


def next_state(before: tuple[Corrected, ...] | None, now: tuple[Corrected, ...]) -> tuple[Corrected, ...]:
    old = {gpu.uuid: gpu for gpu in before or ()}
    return keep(before, (_with_growth(old.get(gpu.uuid), gpu) for gpu in now))


def _with_growth(old: Corrected | None, gpu: Corrected) -> Corrected:
    if old is None or gpu.at_s <= old.at_s:
        return gpu
    new, waited_s = increase(old.count, gpu.count), gpu.at_s - old.at_s
    was_reset = gpu.count < old.count
    if lacks_load(old.idle, gpu.idle) and not was_reset and new * old.waited_s < old.new * waited_s:
        return replace(gpu, new=old.new, waited_s=old.waited_s)
    return replace(gpu, new=new, waited_s=waited_s)


def judge(now: tuple[Corrected, ...], before: tuple[Corrected, ...] | None, policy: Policy) -> Iterator[Finding]:
    here = {gpu.uuid for gpu in now}
    for gpu in next_state(before, now):
        if gpu.uuid not in here or gpu.new < 2 or gpu.waited_s <= 0:  # one error gives no rate
            continue
        per_s = gpu.new / gpu.waited_s
        if per_s * 3600 > policy.per_hour:
            fault, severity = _FLOOD if per_s >= policy.flood_per_s else _RATE
            rate: dict[str, Scalar] = {"new": gpu.new, "per_hour": round(per_s * 3600, 1), "uuid": gpu.uuid}
            yield Finding(gpu.pci, fault, severity, rate)


CHECK = Check(
    name="gpu_ecc_corrected",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(_RATE[0], _FLOOD[0]),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    kernel_wakes=xids(92),
)
