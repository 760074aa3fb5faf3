"""systemd units that should be active and are not, that failed, or that systemd starts again and again.

Asks `systemctl list-units` once (systemctl(1)). Some of NVIDIA's units fail without their hardware: see _NEEDED.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers.pci import has_nvswitches

_ASK = (
    "systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "--full", "--type=service,mount,timer",
)  # fmt: skip
_ASK_TIMEOUT_S = 8.0
_MARKS = "\u25cf\u00d7* "  # some versions print one before a failed unit, despite --plain


@dataclass(frozen=True, slots=True)
class Policy:
    """Units in `expected` must be active. Units in `watched` may be absent or stopped, but must not fail."""

    expected: Mapping[str, Severity] = field(default_factory=dict)  # severity by unit, such as "slurmd.service"
    watched: tuple[str, ...] = (
        "slurmd.service", "munge.service", "sssd.service", "nslcd.service", "chrony*.service", "ntp*.service",
        "nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-dcgm.service",
        "nvidia-mig-manager.service", "nvidia-powerd.service", "openibd.service", "*.mount",
    )  # fmt: skip
    failed: Severity = Severity.MAJOR  # of a watched unit that failed


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit, with the states LOAD, ACTIVE and SUB that systemctl prints."""

    name: str
    load: str
    active: str
    sub: str

    @property
    def is_failed(self) -> bool:
        return self.active == "failed" or self.sub == "auto-restart"


@dataclass(frozen=True, slots=True)
class Units:
    """All loaded units, and the names of those whose hardware this machine does not have."""

    listed: tuple[Unit, ...]
    needless: tuple[str, ...] = ()


def read(host: Host) -> Units:
    """Raises Unavailable where systemd does not run this machine, ValueError where its answer is no list of units."""
    if not host.exists("/run/systemd/system"):  # sd_booted(3)
        raise Unavailable("this machine was not booted with systemd (no /run/systemd/system)")
    program = host.run(_ASK, _ASK_TIMEOUT_S)
    if program.status:
        raise ValueError(f"systemctl list-units: status {program.status}: {program.stderr.strip()[:200]}")
    if not (units := tuple(_unit(line) for line in program.stdout.splitlines() if line.strip())):
        raise ValueError("systemctl list-units: expected at least one unit, got none")
    failed = {unit.name for unit in units if unit.is_failed}
    return Units(units, tuple(name for name, is_needed in _NEEDED.items() if name in failed and not is_needed(host)))


def _is_notebook(host: Host) -> bool:
    """Dynamic Boost, all that powerd does, is for notebooks (SMBIOS 7.4.1: types of chassis)."""
    found = host.glob("/sys/class/dmi/id/chassis_type")
    return bool(found) and host.text(found[0]) in ("8", "9", "10", "11", "14", "30", "31", "32")


_NEEDED: Mapping[str, Callable[[Host], bool]] = {
    "nvidia-fabricmanager.service": has_nvswitches,
    "nvidia-imex.service": lambda host: host.exists("/etc/nvidia-imex/nodes_config.cfg"),
    "nvidia-powerd.service": _is_notebook,
}


def _unit(line: str) -> Unit:
    words = line.lstrip(_MARKS).split(maxsplit=4)
    if len(words) < 4 or "." not in words[0]:
        raise ValueError(f"systemctl list-units: expected UNIT LOAD ACTIVE SUB, got {line[:80]!r}")
    return Unit(*words[:4])


def next_state(before: Units | None, now: Units) -> Units:
    return Units(())  # the units that systemd lists now are enough


def judge(now: Units, before: Units | None, policy: Policy) -> Iterator[Finding]:
    """A unit in `expected` counts whatever hardware there is: the site asks for it."""
    listed = {unit.name: unit for unit in now.listed}
    for name, severity in policy.expected.items():
        unit = listed.get(name, Unit(name, "not-loaded", "inactive", "dead"))
        if unit.active not in ("active", "reloading"):
            yield Finding(name, "service_down", severity, _facts(unit))
    left_out = {*policy.expected, *now.needless}
    for unit in now.listed:
        watched = unit.name not in left_out and any(fnmatchcase(unit.name, p) for p in policy.watched)
        if watched and unit.is_failed:
            yield Finding(unit.name, "service_failed", policy.failed, _facts(unit))


def _facts(unit: Unit) -> dict[str, str]:
    return {"load": unit.load, "active": unit.active, "sub": unit.sub}


CHECK = Check(
    name="services",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("service_down", "service_failed"),
    every_s=300,
    timeout_s=10,
    next_state=next_state,
    raise_after=2,
)
