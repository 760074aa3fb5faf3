"""Versions of BIOS, kernel, GPU driver and InfiniBand stack that differ from the settings.

Reads /sys/class/dmi/id/bios_version, /proc/sys/kernel/osrelease, /sys/module/nvidia/version and
/sys/module/mlx5_core/version (only a driver from outside the kernel has one, such as DOCA-OFED's).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers.sysfs import optional_text

_FILES = {
    "bios": "/sys/class/dmi/id/bios_version",
    "kernel": "/proc/sys/kernel/osrelease",
    "gpu_driver": "/sys/module/nvidia/version",
    "ofed": "/sys/module/mlx5_core/version",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Shell patterns of the right versions; an empty list: any version is right."""

    bios: tuple[str, ...] = ()  # of /sys/class/dmi/id/bios_version
    kernel: tuple[str, ...] = ()  # as `uname -r` prints it
    gpu_driver: tuple[str, ...] = ()  # of the module nvidia
    ofed: tuple[str, ...] = ()  # of the module mlx5_core
    severity: Severity = Severity.WARNING  # of a version that no pattern matches


def read(host: Host) -> Mapping[str, str]:
    """Versions by the name of their setting; "" where the file does not exist."""
    return {name: optional_text(host, path)[:120] for name, path in _FILES.items()}


def judge(now: Mapping[str, str], before: Mapping[str, str] | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where no version is set."""
    wanted: dict[str, tuple[str, ...]] = {name: getattr(policy, name) for name in _FILES}
    if not any(wanted.values()):
        raise Unavailable("no version is set for bios, kernel, gpu_driver or ofed")
    for name, patterns in wanted.items():
        if patterns and not any(fnmatchcase(now.get(name, ""), pattern) for pattern in patterns):
            yield Finding(
                name, "version_drift", policy.severity, {"found": now.get(name, ""), "expected": " ".join(patterns)}
            )


CHECK = Check(
    name="node_drift",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("version_drift",),
    every_s=3600,
)
