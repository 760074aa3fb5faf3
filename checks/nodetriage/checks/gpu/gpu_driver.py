"""GPUs without the persistence mode that they should have, and GPUs of one name with different VBIOS versions.

Source: nvmlDeviceGetPersistenceMode, nvmlDeviceGetVbiosVersion. A driver whose version differs from its library's
refuses all calls; gpu_lost reports that as gpu_driver_unusable.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number


@dataclass(frozen=True, slots=True)
class Policy:
    """Without persistence mode the driver unloads a GPU's state between jobs, and its counters start at 0 each time."""

    expect_persistence: bool = False  # persistence mode should be on
    boot_grace_s: float = 600.0  # after a boot; nvidia-persistenced needs half a minute for eight GPUs
    vbios: str = ""  # the version that each GPU should have; empty: what most GPUs of the same name have


@dataclass(frozen=True, slots=True)
class Driven:
    """One GPU. `persistence` is None and `vbios` "" where NVML does not tell."""

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
        raise Unavailable("NVML reports neither VBIOS nor persistence mode of any GPU here")
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
    """One finding for each GPU that differs; where no version has a majority, one for all of them."""
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
