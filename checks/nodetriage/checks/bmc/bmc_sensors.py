"""Fans and temperatures past their thresholds, as the BMC reports them; and a BMC that does not answer.

Asks `ipmitool sdr type` for fans and temperatures (IPMI 2.0, sensor types 04h and 01h). The thresholds are the
vendor's, which the BMC stores; this check has none of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers import ipmi


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
    """Raises Unavailable without ipmitool, a BMC or such sensors."""
    try:
        fans = ipmi.sensors(ipmi.ask(host, "sdr", "type", "Fan"))
        temperatures = ipmi.sensors(ipmi.ask(host, "sdr", "type", "Temperature"))
    except ipmi.Silent as silence:
        return Air(silent=str(silence))
    fans, temperatures = (tuple(s for s in group if s.read) for group in (fans, temperatures))
    if not fans and not temperatures:
        raise Unavailable("the BMC has no fan and no temperature sensor")
    return Air(fans, temperatures)


def judge(now: Air, before: Air | None, policy: Policy) -> Iterator[Finding]:
    if now.silent:
        yield Finding(ipmi.BMC, "bmc_not_answering", Severity.WARNING, {"asked": now.silent})
    for sensor in now.temperatures:
        evidence = {"reading": sensor.text, "status": sensor.status}
        match sensor.status[-2:]:
            case "nr":
                yield Finding(sensor.name, "bmc_temperature", policy.temperature_non_recoverable, evidence)
            case "cr":
                yield Finding(sensor.name, "bmc_temperature", policy.temperature_critical, evidence)
            case "nc":
                yield Finding(sensor.name, "bmc_temperature", Severity.WARNING, evidence)
    for sensor in now.fans:
        if sensor.status[-2:] in ("cr", "nr"):
            evidence = {"reading": sensor.text, "status": sensor.status}
            yield Finding(sensor.name, "bmc_fan", policy.fan_critical, evidence)


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
