"""GPUs whose power limit, clocks or addressing mode differ from those of their siblings: silent stragglers.

Source: nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetMaxClockInfo, nvmlDeviceGetApplicationsClock,
nvmlDeviceGetAddressingMode, and the field NVML_FI_PWR_SMOOTHING_HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING.
A limit that all GPUs of a node share is the site's own choice.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Gpu, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number

_SHARED = ("power_limit_mw", "clock_max_mhz", "clock_application_mhz", "addressing_mode")
_ATS = 2  # NVML_DEVICE_ADDRESSING_MODE_ATS


@dataclass(frozen=True, slots=True)
class Policy:
    """What a GPU should have, beyond what its siblings have."""

    expect_ats: bool = False  # the GPU shares the CPU's page tables, as on Grace
    power_limit_w: float = 0.0  # that each GPU should have at least; 0: what most GPUs of the node have
    tolerance: float = 0.02  # of a limit or clock, that is no difference
    lifetime_percent: int = 10  # of the power smoothing circuit, below which it is worn


@dataclass(frozen=True, slots=True)
class Settings:
    """One GPU; a value that its driver does not report is absent."""

    pci: str
    uuid: str
    name: str
    values: Mapping[str, int]
    lifetime_percent: int | None = None


def read(host: Host) -> tuple[Settings, ...]:
    found = tuple(_settings(gpu) for gpu in answering(host, whole=True))
    if not any(gpu.values or gpu.lifetime_percent is not None for gpu in found):
        raise Unavailable("NVML reports neither limits nor clocks of any GPU here")
    return found


def _settings(gpu: Gpu) -> Settings:
    values = {fact: value for fact in _SHARED if (value := number(gpu, fact)) is not None}
    if number(gpu, "mig_enabled"):
        values = {}  # with MIG each instance has clocks of its own
    return Settings(gpu.pci, gpu.uuid, gpu.name, values, number(gpu, "power_smoothing_lifetime_percent"))


def judge(now: tuple[Settings, ...], before: tuple[Settings, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        mode = gpu.values.get("addressing_mode")
        if policy.expect_ats and mode not in (None, _ATS):
            yield Finding(gpu.pci, "gpu_ats_lost", Severity.MAJOR, {"addressing_mode": mode or 0, "uuid": gpu.uuid})
        limit_mw = gpu.values.get("power_limit_mw")
        if limit_mw is not None and limit_mw < policy.power_limit_w * 1000 * (1 - policy.tolerance):
            watts: dict[str, Scalar] = {"power_limit_w": limit_mw / 1000, "expected_w": policy.power_limit_w}
            yield Finding(gpu.pci, "gpu_settings_differ", Severity.WARNING, {**watts, "uuid": gpu.uuid})
        elif different := _different(gpu, [g for g in now if g.name == gpu.name], policy):
            yield Finding(gpu.pci, "gpu_settings_differ", Severity.WARNING, {**different, "uuid": gpu.uuid})
        if gpu.lifetime_percent is not None and gpu.lifetime_percent < policy.lifetime_percent:
            left: dict[str, Scalar] = {"lifetime_percent": gpu.lifetime_percent, "uuid": gpu.uuid}
            yield Finding(gpu.pci, "gpu_power_smoothing_worn", Severity.WARNING, left)


def _different(gpu: Settings, alike: list[Settings], policy: Policy) -> dict[str, Scalar]:
    """The values that most GPUs of the same name have otherwise, which makes this GPU the slower one or another."""
    found: dict[str, Scalar] = {}
    for name, value in gpu.values.items():
        (most, votes), *_ = Counter(g.values[name] for g in alike if name in g.values).most_common()
        if votes * 2 <= len(alike) or value == most:
            continue
        if name == "addressing_mode" or value < most * (1 - policy.tolerance):
            found |= {name: value, f"others_{name}": most}
    return found


CHECK = Check(
    name="gpu_settings",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_settings_differ", "gpu_ats_lost", "gpu_power_smoothing_worn"),
    worker="gpu",
    timeout_s=10,
    raise_after=2,  # a prolog may be setting one GPU after the other
)
