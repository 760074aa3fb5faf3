"""Power supplies that failed, lost their input or went missing, and redundancy that is gone, as the BMC reports them.

Asks `ipmitool sdr type` for power supplies and power units (IPMI 2.0, table 42-3, sensor types 08h and 09h). A supply
without input still has the status "ok", so what counts is the states that a discrete sensor asserts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers import ipmi

_FAILED = ("Failure detected", "Config Error", "Configuration error")
_NO_INPUT = ("Power Supply AC lost", "AC lost or out-of-range", "AC out-of-range, but present", "AC lost")
_PREDICTED = "Predictive failure"
_PRESENT = "Presence detected"
_REDUNDANCY_LOST = (
    "Redundancy Lost",
    "Non-Redundant: Sufficient from Redundant",
    "Non-Redundant: Insufficient Resources",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Severities. When one of several supplies fails, the node still works."""

    failed: Severity = Severity.WARNING  # a supply that failed, lost its input or is gone
    redundancy_lost: Severity = Severity.MAJOR  # the next supply that fails stops the node


@dataclass(frozen=True, slots=True)
class Power:
    """The sensors that have a reading."""

    supplies: tuple[ipmi.Sensor, ...]  # their discrete status sensors
    units: tuple[ipmi.Sensor, ...]
    seen: tuple[str, ...]  # supplies that were present in any run of this boot


def read(host: Host) -> Power:
    """Raises Unavailable without ipmitool, a BMC or such sensors; ipmi.Silent where the BMC does not answer."""
    supplies = ipmi.sensors(ipmi.ask(host, "sdr", "type", "Power Supply"))
    units = ipmi.sensors(ipmi.ask(host, "sdr", "type", "Power Unit"))
    status = tuple(s for s in supplies if s.read and not s.text[:1].isdigit())
    units = tuple(u for u in units if u.read and not u.text[:1].isdigit())
    if not status and not units:
        raise Unavailable("the BMC has no sensor for power supplies")
    return Power(status, units, tuple(s.name for s in status if _PRESENT in s.states))


def next_state(before: Power | None, now: Power) -> Power:
    seen = dict.fromkeys((*(before.seen if before else ()), *now.seen))
    return Power(now.supplies, now.units, tuple(seen))


def judge(now: Power, before: Power | None, policy: Policy) -> Iterator[Finding]:
    for supply in now.supplies:
        evidence = {"states": supply.text, "entity": supply.entity}
        if any(state in supply.text for state in _FAILED):
            yield Finding(supply.name, "psu_failed", policy.failed, evidence)
        elif any(state in supply.text for state in _NO_INPUT):
            yield Finding(supply.name, "psu_input_lost", policy.failed, evidence)
        elif _PREDICTED in supply.text:
            yield Finding(supply.name, "psu_failure_predicted", Severity.WARNING, evidence)
    for name in before.seen if before else ():
        if name not in now.seen:
            yield Finding(name, "psu_missing", policy.failed, {})
    for unit in now.units:
        if any(state in unit.text for state in _REDUNDANCY_LOST):
            yield Finding(unit.name, "psu_redundancy_lost", policy.redundancy_lost, {"states": unit.text})


CHECK = Check(
    name="bmc_power",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("psu_failed", "psu_input_lost", "psu_failure_predicted", "psu_missing", "psu_redundancy_lost"),
    worker="bmc",
    timeout_s=130,
    next_state=next_state,
    raise_after=2,
)
