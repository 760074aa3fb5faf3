"""Power supplies that failed, lost their input or went missing, and redundancy that is gone, as the BMC reports them.

Asks `ipmitool sdr type` for power supplies and power units (IPMI 2.0, table 42-3, sensor types 08h and 09h). A supply
without input still has the status "ok", so what counts is the states that a discrete sensor asserts. Makers give the
sensor of the redundancy either type. Without ipmitool or its BMC, the Redfish service is asked.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers import ipmi
from nodetriage.checks.readers.redfish import parts
from nodetriage.checks.readers.redfish.service import instead

_FAILED = ("Failure detected", "Config Error", "Configuration error", "Install Error")
_NO_INPUT = ("AC lost", "AC out-of-range", "input lost", "input out-of-range")
_PREDICTED = ("Predictive failure", "Predictive Failure Asserted")
_PRESENT = ("Presence detected", "Device Present")
_REDUNDANT = re.compile(r"(Non-Redundant|Redundancy|Fully Redundant)\b")
_DEGRADED = "Redundancy Degraded"  # one supply is gone and another may still go
_STILL_ENOUGH = ("Fully Redundant", "Redundancy Regained")
# Sensors with one bit, whose name says what it means when it is set.
_BIT = "State Asserted"
_NO_INPUT_BIT = re.compile(r"(AC|Input|VIN)[ _-]?(Lost|Loss|Fault)", re.IGNORECASE)
_FAILED_BIT = re.compile(r"PSU?\d?.*(Fail|Fault|Over[ _-]?Temp)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Policy:
    """Severities. When one of several supplies fails, the node still works."""

    failed: Severity = Severity.WARNING  # a supply that failed, lost its input or is gone
    redundancy_lost: Severity = Severity.MAJOR  # the next supply that fails stops the node
    redundancy_degraded: Severity = Severity.WARNING  # a supply is gone, and one more may go


@dataclass(frozen=True, slots=True)
class Power:
    """The sensors that the BMC can read and that have states, not readings alone."""

    supplies: tuple[ipmi.Sensor, ...]
    units: tuple[ipmi.Sensor, ...]
    seen: tuple[str, ...]  # supplies that were present in any run of this boot


def read(host: Host) -> Power:
    """Raises Unavailable without such sensors, neither ipmitool's nor Redfish's; ipmi.Silent, OSError, ValueError."""
    try:
        supplies, units = (_with_states(ipmi.ask(host, "sdr", "type", t)) for t in ("Power Supply", "Power Unit"))
    except Unavailable as missing:
        supplies, units = instead(parts.read_supplies, host, missing), ()
    if not any(sensor.states for sensor in (*supplies, *units)):
        raise Unavailable("the BMC has no sensor with states of power supplies")
    return Power(supplies, units, tuple(s.name for s in supplies if _is_present(s)))


def _with_states(text: str) -> tuple[ipmi.Sensor, ...]:
    return tuple(s for s in ipmi.sensors(text) if s.readable and (s.states or not s.text))


def next_state(before: Power | None, now: Power) -> Power:
    seen = dict.fromkeys((*(before.seen if before else ()), *now.seen))
    return Power(now.supplies, now.units, tuple(seen))


def judge(now: Power, before: Power | None, policy: Policy) -> Iterator[Finding]:
    for sensor in (*now.supplies, *now.units):
        if any(_REDUNDANT.match(state) for state in sensor.states):
            yield from _redundancy(sensor, policy)
    for supply in now.supplies:
        yield from _supply(supply, policy)
        # A supply whose sensor cannot be read is unknown, not gone: it is not among them.
        if before and supply.name in before.seen and not _is_present(supply):
            yield Finding(supply.name, "psu_missing", policy.failed, {"entity": supply.entity})


def _is_present(supply: ipmi.Sensor) -> bool:
    return any(state in _PRESENT for state in supply.states)


def _supply(supply: ipmi.Sensor, policy: Policy) -> Iterator[Finding]:
    evidence = {"states": supply.text, "entity": supply.entity}
    bit = _BIT in supply.states
    if _any(_FAILED, supply) or (bit and _FAILED_BIT.search(supply.name)):
        yield Finding(supply.name, "psu_failed", policy.failed, evidence)
    elif _any(_NO_INPUT, supply) or (bit and _NO_INPUT_BIT.search(supply.name)):
        yield Finding(supply.name, "psu_input_lost", policy.failed, evidence)
    elif _any(_PREDICTED, supply):
        yield Finding(supply.name, "psu_failure_predicted", Severity.WARNING, evidence)


def _any(words: tuple[str, ...], supply: ipmi.Sensor) -> bool:
    return any(word in state for state in supply.states for word in words)


def _redundancy(sensor: ipmi.Sensor, policy: Policy) -> Iterator[Finding]:
    if any(state in _STILL_ENOUGH for state in sensor.states):
        return
    degraded = all(state.startswith(_DEGRADED) for state in sensor.states if _REDUNDANT.match(state))
    severity = policy.redundancy_degraded if degraded else policy.redundancy_lost
    yield Finding(sensor.name, "psu_redundancy_lost", severity, {"states": sensor.text})


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
