"""GPUs that heat, an external power brake or the board's power supply slows down.

Source: NVML's fields NVML_FI_DEV_CLOCKS_EVENT_REASON_* and NVML_FI_DEV_PERF_POLICY_* (nanoseconds since the driver was
loaded), else nvmlDeviceGetCurrentClocksEventReasons at each run. Limits that the driver sets (the power cap under full
load) are no fault.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Check, Finding, Gpu, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.rules.counters import increase, keep
from nodetriage.checks.rules.gpu.load import IDLE_BIT, lacks_load

# nvmlClocksEventReason*. hw_slowdown comes with each other reason of the hardware, and alone from the board's supply.
_REASONS = {
    "hw_slowdown": 1 << 3,
    "sw_thermal_slowdown": 1 << 5,
    "hw_thermal_slowdown": 1 << 6,
    "hw_power_brake": 1 << 7,
}
_TIMES = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")
_OLD_TIMES = ("thermal", "board_limit")  # of drivers that lack the others
_WINDOW = 10  # runs


@dataclass(frozen=True, slots=True)
class Policy:
    """How much of the time is too much; where the driver counts no time, how many runs must see the GPU slow."""

    share: float = 0.1  # of the time between two runs
    samples: int = 3  # slow runs in a row that make a fault
    most_samples: int = 6  # or so many of the last 10


@dataclass(frozen=True, slots=True)
class Clocks:
    """Why the clocks of one GPU are held down."""

    pci: str
    uuid: str
    at_s: float  # since boot
    reasons: int  # the bits as NVML gives them
    times_ns: Mapping[str, int] = field(default_factory=dict)  # reason -> since the driver was loaded
    shares: Mapping[str, float] = field(
        default_factory=dict
    )  # the rest is kept: reason -> share of the time, last seen
    slow: tuple[bool, ...] = ()  # the last runs, oldest first


def read(host: Host) -> tuple[Clocks, ...]:
    at_s = host.boottime_s()
    known = ((gpu, number(gpu, "clocks_event_reasons")) for gpu in answering(host, whole=True))
    found = tuple(Clocks(g.pci, g.uuid, at_s, reasons, _times(g)) for g, reasons in known if reasons is not None)
    if not found:
        raise Unavailable("NVML reports for no GPU here why its clocks are held down")
    return found


def _times(gpu: Gpu) -> dict[str, int]:
    for names in (_TIMES, _OLD_TIMES):
        if times := {n: time for n in names if (time := number(gpu, f"slowed_{n}_ns")) is not None}:
            return times
    return {}


def next_state(before: tuple[Clocks, ...] | None, now: tuple[Clocks, ...]) -> tuple[Clocks, ...]:
    old = {gpu.uuid: gpu for gpu in before or ()}
    return keep(before, (_with_past(old.get(gpu.uuid), gpu) for gpu in now))


def _with_past(old: Clocks | None, gpu: Clocks) -> Clocks:
    slow = (*(old.slow if old else ()), bool(_names(gpu)))[-_WINDOW:]
    if old is None or gpu.at_s <= old.at_s:
        return replace(gpu, slow=slow, shares=old.shares if old else {})
    waited_ns = (gpu.at_s - old.at_s) * 1e9
    shares = {name: increase(old.times_ns.get(name), time) / waited_ns for name, time in gpu.times_ns.items()}
    if lacks_load(bool(old.reasons & IDLE_BIT), bool(gpu.reasons & IDLE_BIT)):
        shares = {name: max(share, old.shares.get(name, 0.0)) for name, share in shares.items()}
    return replace(gpu, slow=slow, shares=shares)


def judge(now: tuple[Clocks, ...], before: tuple[Clocks, ...] | None, policy: Policy) -> Iterator[Finding]:
    here = {gpu.uuid for gpu in now}
    for gpu in next_state(before, now):
        found = _found(gpu, policy) if gpu.uuid in here else None
        if found:
            yield Finding(gpu.pci, "gpu_throttled", Severity.WARNING, {**found, "uuid": gpu.uuid})


def _found(gpu: Clocks, policy: Policy) -> dict[str, Scalar] | None:
    """By the times where the driver counts them, else by the samples."""
    if gpu.times_ns:
        over = {name: share for name, share in gpu.shares.items() if share >= policy.share}
        return {"reasons": ",".join(over), "share": round(max(over.values()), 3)} if over else None
    row = next((n for n, slow in enumerate(reversed(gpu.slow)) if not slow), len(gpu.slow))
    if gpu.slow[-1] and (row >= policy.samples or sum(gpu.slow) >= policy.most_samples):
        return {"reasons": ",".join(_names(gpu)), "looks": sum(gpu.slow)}
    return None


def _names(gpu: Clocks) -> list[str]:
    return [name for name, bit in _REASONS.items() if gpu.reasons & bit]


CHECK = Check(
    name="gpu_throttle",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_throttled",),
    worker="gpu",
    every_s=300,
    timeout_s=10,
    next_state=next_state,
    runs_needed=lambda policy: policy.samples,
)
