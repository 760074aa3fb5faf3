"""Fans and temperatures past their thresholds, as the BMC reports them; and a BMC that does not answer.

Asks `ipmitool sdr type` for fans and temperatures (IPMI 2.0, sensor types 04h and 01h). The thresholds are the
vendor's, which the BMC stores; this check has none of its own. The lower thresholds of a temperature are no heat: a
dead sensor reads 0 degrees. On the distance to throttling ("Margin", "DTS") they are the heat, and the upper ones not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers import ipmi
from nodetriage.checks.readers.redfish import parts
from nodetriage.checks.readers.redfish.service import instead

_MARGIN = re.compile(r"Margin|DTS", re.IGNORECASE)
_COLD_C = 25.0  # below this no reading without a side is heat
# Discrete sensors: what they assert, and the threshold that this is like.
_STATES = (
    (re.compile(r"Transition to Non-recoverable"), "nr"),
    (re.compile(r"Transition to Critical|Limit Exceeded"), "cr"),
    (re.compile(r"Transition to Non-critical"), "nc"),
)
_HOT_BIT = re.compile(r"(PROC|VR|VRD ?|MEM|DIMM)_?HOT|Therm(al)? ?Trip|Over ?Temp", re.IGNORECASE)
_FAN_STATES = re.compile(
    r"Transition to (Critical|Non-recoverable|Off|Degraded)|Redundancy Lost|Predictive Failure Assert"
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Severities of a sensor that is past its critical or its non-recoverable threshold."""

    temperature_critical: Severity = Severity.MAJOR
    temperature_non_recoverable: Severity = Severity.CRITICAL
    fan_critical: Severity = (
        Severity.WARNING
    )  # the other fans speed up, and the temperatures show whether that is enough


@dataclass(frozen=True, slots=True)
class Air:
    """`silent` is the question to which the BMC gave no answer; then there are no sensors."""

    fans: tuple[ipmi.Sensor, ...] = ()
    temperatures: tuple[ipmi.Sensor, ...] = ()
    silent: str = ""


def read(host: Host) -> Air:
    """Raises Unavailable without such sensors, neither ipmitool's nor Redfish's; OSError, ValueError."""
    try:
        fans = ipmi.sensors(ipmi.ask(host, "sdr", "type", "Fan"))
        temperatures = ipmi.sensors(ipmi.ask(host, "sdr", "type", "Temperature"))
    except ipmi.Silent as silence:
        return Air(silent=str(silence))
    except Unavailable as missing:
        fans, temperatures = instead(parts.read_air, host, missing)
    fans, temperatures = (tuple(s for s in group if s.read) for group in (fans, temperatures))
    if not fans and not temperatures:
        raise Unavailable("the BMC has no fan and no temperature sensor")
    return Air(fans, temperatures)


def judge(now: Air, before: Air | None, policy: Policy) -> Iterator[Finding]:
    if now.silent:
        yield Finding(ipmi.BMC, "bmc_not_answering", Severity.WARNING, {"asked": now.silent})
    for sensor in now.temperatures:
        evidence = {"reading": sensor.text, "status": sensor.status}
        match _heat(sensor):
            case "nr":
                yield Finding(sensor.name, "bmc_temperature", policy.temperature_non_recoverable, evidence)
            case "cr":
                yield Finding(sensor.name, "bmc_temperature", policy.temperature_critical, evidence)
            case "nc":
                yield Finding(sensor.name, "bmc_temperature", Severity.WARNING, evidence)
    for sensor in now.fans:
        if sensor.status[-2:] in ("cr", "nr") or _FAN_STATES.search(sensor.text):
            evidence = {"reading": sensor.text, "status": sensor.status}
            yield Finding(sensor.name, "bmc_fan", policy.fan_critical, evidence)


def _heat(sensor: ipmi.Sensor) -> str:
    """The threshold that the heat has passed: nc, cr, nr; empty for none."""
    if sensor.value is None and sensor.status == "ok":
        if "State Asserted" in sensor.states and _HOT_BIT.search(sensor.name):
            return "nc"
        return next((level for words, level in _STATES if words.search(sensor.text)), "")
    side, level = sensor.status[:-2], sensor.status[-2:]
    if not side and (sensor.value or 0.0) < _COLD_C and not _MARGIN.search(sensor.name):
        return ""
    hot = ("l", "") if _MARGIN.search(sensor.name) else ("u", "")
    return level if side in hot else ""


CHECK = Check(
    name="bmc_sensors",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("bmc_temperature", "bmc_fan", "bmc_not_answering"),
    worker="bmc",
    timeout_s=130,
    raise_after=2,
)
