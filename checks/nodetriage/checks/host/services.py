"""systemd units that should be active and are not, that failed, or that are started again and again.

Asks `systemctl list-units` once for all units (systemctl(1)); a unit that is not loaded is not listed.
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
_MARKS = "\u25cf\u00d7* "  # before a failed unit, by some versions in spite of --plain


@dataclass(frozen=True, slots=True)
class Policy:
    """`expected` units must be active. Of the others, `watched` ones must not have failed."""

    expected: Mapping[str, Severity] = field(default_factory=dict)  # by unit, as "slurmd.service"
    watched: tuple[str, ...] = (
        "slurmd.service", "munge.service", "sssd.service", "nslcd.service", "chrony*.service", "ntp*.service",
        "nvidia-*.service", "openibd.service", "*.mount",
    )  # fmt: skip
    failed: Severity = Severity.MAJOR  # of a watched unit


@dataclass(frozen=True, slots=True)
class Unit:
    """`load`, `active` and `sub` are systemd's words."""

    name: str
    load: str
    active: str
    sub: str


def read(host: Host) -> tuple[Unit, ...]:
    """Raises Unavailable where this machine is not run by systemd, ValueError where its answer is no list of units."""
    if not host.exists("/run/systemd/system"):  # sd_booted(3)
        raise Unavailable("this machine was not booted with systemd (no /run/systemd/system)")
    program = host.run(_ASK, _ASK_TIMEOUT_S)
    if program.status:
        raise ValueError(f"systemctl list-units: status {program.status}: {program.stderr.strip()[:200]}")
    units = tuple(_unit(line) for line in program.stdout.splitlines() if line.strip())
    if not units:
        raise ValueError("systemctl list-units: it lists no unit")
    return units


def _unit(line: str) -> Unit:
    words = line.lstrip(_MARKS).split(maxsplit=4)
    if len(words) < 4 or "." not in words[0]:
        raise ValueError(f"systemctl list-units: expected UNIT LOAD ACTIVE SUB, got {line[:80]!r}")
    return Unit(*words[:4])


def next_state(before: tuple[Unit, ...] | None, now: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Nothing: what is wrong is wrong now."""
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
