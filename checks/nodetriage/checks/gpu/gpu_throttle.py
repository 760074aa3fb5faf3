"""GPUs that their own hardware slows down, because of heat, an external power brake or the board's power supply.

Source: nvmlDeviceGetCurrentClocksEventReasons. Limits of the driver (the power cap under full load) are no fault.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number

# nvmlClocksEventReason* of the hardware. The first comes with each other one, and alone from the board's supply.
_REASONS = {"hw_slowdown": 1 << 3, "hw_thermal_slowdown": 1 << 6, "hw_power_brake": 1 << 7}


@dataclass(frozen=True, slots=True)
class Policy:
    """A single slow sample is no fault."""

    samples: int = 3  # slow runs in a row that make a fault


@dataclass(frozen=True, slots=True)
class Clocks:
    """Why the clocks of one GPU are held down, and in how many runs in a row its hardware was the reason."""

    pci: str
    uuid: str
    reasons: int  # the bits as NVML gives them
    slow_looks: int = 0  # kept from earlier runs


def read(host: Host) -> tuple[Clocks, ...]:
    known = ((gpu, number(gpu, "clocks_event_reasons")) for gpu in answering(host, whole=True))
    found = tuple(Clocks(gpu.pci, gpu.uuid, reasons) for gpu, reasons in known if reasons is not None)
    if not found:
        raise Unavailable("NVML reports for no GPU here why its clocks are held down")
    return found


def next_state(before: tuple[Clocks, ...] | None, now: tuple[Clocks, ...]) -> tuple[Clocks, ...]:
    looks = {gpu.uuid: gpu.slow_looks for gpu in before or ()}
    return tuple(replace(gpu, slow_looks=looks.get(gpu.uuid, 0) + 1 if _names(gpu) else 0) for gpu in now)


def judge(now: tuple[Clocks, ...], before: tuple[Clocks, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in next_state(before, now):
        if (names := _names(gpu)) and gpu.slow_looks >= policy.samples:
            evidence: dict[str, Scalar] = {"reasons": ",".join(names), "looks": gpu.slow_looks, "uuid": gpu.uuid}
            yield Finding(gpu.pci, "gpu_throttled", Severity.WARNING, evidence)


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
