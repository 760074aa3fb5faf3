"""How the driver runs the GPUs: persistence mode off where it should be on, GPUs of one kind with different VBIOS.

Source: nvmlDeviceGetPersistenceMode, nvmlDeviceGetVbiosVersion. A driver that does not fit its library refuses every
call; that is gpu_lost's gpu_driver_unusable.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number


@dataclass(frozen=True, slots=True)
class Policy:
    """`expect_persistence`: without it the driver unloads state between jobs, and counters start anew each time."""

    expect_persistence: bool = False
    boot_grace_s: float = 600.0  # nvidia-persistenced starts late, and needs half a minute for eight GPUs
    vbios: str = ""  # what every GPU should have; empty: what most of the same name have


@dataclass(frozen=True, slots=True)
class Driven:
    """One GPU as the driver runs it."""

    pci: str
    uuid: str
    name: str
    vbios: str
    persistence: bool | None
    uptime_s: float


def read(host: Host) -> tuple[Driven, ...]:
    uptime_s = host.boottime_s()
    found = []
    for gpu in answering(host, whole=True):
        mode = number(gpu, "persistence_mode")
        vbios = gpu.facts.get("vbios", "")
        if not isinstance(vbios, str):
            raise ValueError(f"{gpu.pci}: vbios: expected text, got {vbios!r}")
        if vbios or mode is not None:
            found.append(Driven(gpu.pci, gpu.uuid, gpu.name, vbios, None if mode is None else bool(mode), uptime_s))
    if not found:
        raise Unavailable("no GPU here tells its VBIOS or its persistence mode")
    return tuple(found)


def judge(now: tuple[Driven, ...], before: tuple[Driven, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        late = gpu.uptime_s >= policy.boot_grace_s
        if policy.expect_persistence and gpu.persistence is False and late:
            evidence: dict[str, Scalar] = {"uptime_s": round(gpu.uptime_s), "uuid": gpu.uuid}
            yield Finding(gpu.pci, "gpu_persistence_off", Severity.WARNING, evidence)
    for name in dict.fromkeys(gpu.name for gpu in now):
        yield from _vbios([gpu for gpu in now if gpu.name == name and gpu.vbios], policy.vbios)


def _vbios(alike: list[Driven], wanted: str) -> Iterator[Finding]:
    """The odd ones; where none has a majority, all are named at once."""
    versions = Counter(gpu.vbios for gpu in alike).most_common()
    if not wanted and len(versions) > 1 and versions[0][1] == versions[1][1]:
        yield Finding(
            "gpus", "gpu_vbios_drift", Severity.WARNING, {"versions": ",".join(sorted(v for v, _ in versions))}
        )
        return
    expected = wanted or (versions[0][0] if versions else "")
    for gpu in alike:
        if gpu.vbios != expected:
            evidence = {"vbios": gpu.vbios[:64], "expected": expected[:64], "uuid": gpu.uuid}
            yield Finding(gpu.pci, "gpu_vbios_drift", Severity.WARNING, evidence)


CHECK = Check(
    name="gpu_driver",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_persistence_off", "gpu_vbios_drift"),
    worker="gpu",
    timeout_s=10,
)
