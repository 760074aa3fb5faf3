"""systemd units that should be active and are not, that failed, or that systemd starts again and again.

Asks `systemctl list-units` once for all units (systemctl(1)), which leaves out units that are not loaded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable

_ASK = (
    "systemctl",
    "list-units",
    "--all",
    "--plain",
    "--no-legend",
    "--no-pager",
    "--full",
    "--type=service,mount,timer",
)
_ASK_TIMEOUT_S = 8.0
_MARKS = "\u25cf\u00d7* "  # some versions print one before a failed unit, despite --plain


@dataclass(frozen=True, slots=True)
class Policy:
    """Units in `expected` must be active. Units in `watched` may be absent or stopped, but must not fail."""

    expected: Mapping[str, Severity] = field(default_factory=dict)  # severity by unit, such as "slurmd.service"
    watched: tuple[str, ...] = (
        "slurmd.service", "munge.service", "sssd.service", "nslcd.service", "chrony*.service", "ntp*.service",
        "nvidia-*.service", "openibd.service", "*.mount",
    )  # fmt: skip
    failed: Severity = Severity.MAJOR  # of a watched unit that failed


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit, with the states LOAD, ACTIVE and SUB that systemctl prints."""

    name: str
    load: str
    active: str
    sub: str


def read(host: Host) -> tuple[Unit, ...]:
    """Raises Unavailable where systemd does not run this machine, ValueError where its answer is no list of units."""
    if not host.exists("/run/systemd/system"):  # sd_booted(3)
        raise Unavailable("this machine was not booted with systemd (no /run/systemd/system)")
    program = host.run(_ASK, _ASK_TIMEOUT_S)
    if program.status:
        raise ValueError(f"systemctl list-units: status {program.status}: {program.stderr.strip()[:200]}")
    units = tuple(_unit(line) for line in program.stdout.splitlines() if line.strip())
    if not units:
        raise ValueError("systemctl list-units: expected at least one unit, got none")
    return units


def _unit(line: str) -> Unit:
    words = line.lstrip(_MARKS).split(maxsplit=4)
    if len(words) < 4 or "." not in words[0]:
        raise ValueError(f"systemctl list-units: expected UNIT LOAD ACTIVE SUB, got {line[:80]!r}")
    return Unit(*words[:4])


def next_state(before: tuple[Unit, ...] | None, now: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Nothing: the units that systemd lists now are enough."""
    return ()


def judge(now: tuple[Unit, ...], before: tuple[Unit, ...] | None, policy: Policy) -> Iterator[Finding]:
    listed = {unit.name: unit for unit in now}
    for name, severity in policy.expected.items():
        unit = listed.get(name, Unit(name, "not-loaded", "inactive", "dead"))
        if unit.active not in ("active", "reloading"):
            yield Finding(name, "service_down", severity, _facts(unit))
    for unit in now:
        watched = unit.name not in policy.expected and any(fnmatchcase(unit.name, p) for p in policy.watched)
        if watched and (unit.active == "failed" or unit.sub == "auto-restart"):
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
