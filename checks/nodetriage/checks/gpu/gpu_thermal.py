"""GPUs that are hot and about to slow down.

Source: nvmlDeviceGetMarginTemperature, else nvmlDeviceGetTemperature and nvmlDeviceGetTemperatureThreshold; likewise
for memory. The check uses the margin to the board's own limit and no fixed temperature, because limits differ by 20 K.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Gpu, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number


@dataclass(frozen=True, slots=True)
class Policy:
    """A single hot sample is no fault."""

    margin_c: float = 3.0  # kelvins to the limit, or fewer, that count as hot
    memory_margin_c: float = 3.0  # the same for the GPU's memory
    samples: int = 3  # hot runs in a row that make a fault


@dataclass(frozen=True, slots=True)
class Heat:
    """Kelvins from one GPU and its memory to their limits; negative past the limit, None where NVML has no value."""

    pci: str
    uuid: str
    temperature_c: int
    margin_c: int | None
    memory_margin_c: int | None
    margins_c: tuple[int, ...] = ()  # kept from earlier runs: the last samples, oldest first
    memory_margins_c: tuple[int, ...] = ()


def read(host: Host) -> tuple[Heat, ...]:
    found = tuple(heat for gpu in answering(host, whole=True) if (heat := _heat(gpu)))
    if not found:
        raise Unavailable("NVML reports for no GPU here how far it is from slowing down")
    return found


def _heat(gpu: Gpu) -> Heat | None:
    now, slowdown = number(gpu, "temperature_c"), number(gpu, "temperature_slowdown_c")
    memory, memory_max = number(gpu, "memory_temperature_c"), number(gpu, "temperature_memory_max_c")
    margin = number(gpu, "temperature_margin_c", least=-1000)  # negative past the limit
    if margin is None and slowdown and now is not None:
        margin = slowdown - now
    memory_margin = memory_max - memory if memory and memory_max else None
    if margin is None and memory_margin is None:
        return None
    return Heat(gpu.pci, gpu.uuid, now or 0, margin, memory_margin)


def next_state(before: tuple[Heat, ...] | None, now: tuple[Heat, ...]) -> tuple[Heat, ...]:
    """The newest reading with the samples before it, as many as any setting can ask for."""
    old = {gpu.uuid: gpu for gpu in before or ()}
    return tuple(
        replace(
            gpu,
            margins_c=_longer(old[gpu.uuid].margins_c if gpu.uuid in old else (), gpu.margin_c),
            memory_margins_c=_longer(old[gpu.uuid].memory_margins_c if gpu.uuid in old else (), gpu.memory_margin_c),
        )
        for gpu in now
    )


def _longer(samples: tuple[int, ...], new: int | None) -> tuple[int, ...]:
    return () if new is None else (*samples, new)[-60:]


def judge(now: tuple[Heat, ...], before: tuple[Heat, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in next_state(before, now):
        for what, samples, limit_c in (
            ("gpu", gpu.margins_c, policy.margin_c),
            ("memory", gpu.memory_margins_c, policy.memory_margin_c),
        ):
            last = samples[-max(1, policy.samples) :]
            if len(last) >= policy.samples and all(margin_c <= limit_c for margin_c in last):
                evidence: dict[str, Scalar] = {"what": what, "margin_c": last[-1], "temperature_c": gpu.temperature_c}
                yield Finding(gpu.pci, "gpu_hot", Severity.WARNING, {**evidence, "uuid": gpu.uuid})


CHECK = Check(
    name="gpu_thermal",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_hot",),
    worker="gpu",
    every_s=300,
    timeout_s=10,
    next_state=next_state,
    runs_needed=lambda policy: policy.samples,
)
