"""Supplies, fans, temperatures, leak detectors and GPU boards as a Redfish service describes them.

First the health that rolls up to a system or a chassis, and deeper only where it is not OK, or where a report of the
service has hundreds of values in one answer (DSP0268: Chassis, Power, Thermal, PowerSubsystem, ThermalSubsystem,
LeakDetection, MetricReport; NVIDIA's HGX boards: HGX_MemoryMetrics and HGX_ProcessorPortMetrics).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Host
from nodetriage.checks.readers.ipmi import Sensor
from nodetriage.checks.readers.redfish.service import ROOT, Resource, Service, link, name_of, objects, text, within

_REPORTS = re.compile(r"HGX_(Memory|ProcessorPort|Processor)Metrics(_\d+)?")
_ROW = re.compile(r"/Memory/(?P<part>[^/#]+)#/Oem/Nvidia/RowRemapping(?P<what>Failed|Pending)")
_PORT = re.compile(r"/(?:Processors|Switches)/(?P<part>[^/#]+)/Ports/(?P<port>NVLink_\d+)#/LinkStatus")
_STATE = re.compile(r"/Processors/(?P<part>[^/#]+)#/Status/State")
_STATUS = {"Critical": "ucr", "Warning": "unc"}


@dataclass(frozen=True, slots=True)
class Rollup:
    """The health of a system or chassis and all below it."""

    name: str
    health: str  # OK, Warning, Critical; empty where the service says nothing


@dataclass(frozen=True, slots=True)
class Leak:
    """A detector of liquid. `state`: OK, Warning, Critical, Unavailable."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Board:
    """What only the BMC of a GPU board knows. Ports are GPU or switch and port: GPU_SXM_1/NVLink_3."""

    rollups: tuple[Rollup, ...] = ()
    leaks: tuple[Leak, ...] = ()
    remap_failed: tuple[str, ...] = ()
    remap_pending: tuple[str, ...] = ()
    ports_up: tuple[str, ...] = ()
    ports_down: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    gpus_absent: tuple[str, ...] = ()


def read_board(host: Host) -> Board:
    """Raises as Host.redfish."""
    service = Service(host)
    systems = [(path, service.get(path)) for path in service.members(f"{ROOT}/Systems")[:4]]
    chassis = [(path, service.get(path)) for path in _chassis(service, [about for _, about in systems])]
    rollups = tuple(Rollup(name_of(path), _health(about)) for path, about in (*systems, *chassis))
    leaks = tuple(leak for _, about in chassis for leak in _leaks(service, about))
    values = list(_metric_values(service))
    processors = [name for path, about in systems for name in _processors(service, path, about)]
    rows = [found for property_, value in values if value == "true" and (found := _ROW.search(property_))]
    ports = [(f"{m['part']}/{m['port']}", value) for p, value in values if (m := _PORT.search(p))]
    states = {m["part"]: value for p, value in values if (m := _STATE.search(p))}
    present = {name: states.get(name, "Enabled") for name in (*processors, *states) if "GPU" in name}
    return Board(
        rollups,
        leaks,
        tuple(m["part"] for m in rows if m["what"] == "Failed"),
        tuple(m["part"] for m in rows if m["what"] == "Pending"),
        tuple(port for port, value in ports if value == "LinkUp"),
        tuple(port for port, value in ports if value in ("LinkDown", "NoLink")),
        tuple(name for name, state in present.items() if state != "Absent"),
        tuple(name for name, state in present.items() if state == "Absent"),
    )


def read_supplies(host: Host) -> tuple[Sensor, ...]:
    """Power supplies and their redundancy in ipmitool's words. Raises as Host.redfish."""
    service = Service(host)
    found = list[Sensor]()
    for path in _all_chassis(service):
        about = service.structure(path)
        if subsystem := service.get(link(about.get("PowerSubsystem"))):
            paths = service.members(link(subsystem.get("PowerSupplies")))
            supplies = [(name_of(p), service.get(p)) for p in paths]
            redundancy = list(objects(subsystem, "PowerSupplyRedundancy"))
        else:
            power = service.get(link(about.get("Power")))
            supplies = [(text(s, "MemberId") or text(s, "Name"), s) for s in objects(power, "PowerSupplies")]
            redundancy = list(objects(power, "Redundancy"))
        found += (Sensor(f"PSU {name}", "ok", name_of(path), words) for name, s in supplies if (words := _supply(s)))
        found += (Sensor("PSU redundancy", "ok", name_of(path), words) for r in redundancy if (words := _redundancy(r)))
    return tuple(found)


def read_air(host: Host) -> tuple[tuple[Sensor, ...], tuple[Sensor, ...]]:
    """Fans and temperatures with the status that ipmitool would print. Raises as Host.redfish."""
    service = Service(host)
    fans, temperatures = list[Sensor](), list[Sensor]()
    for path in _all_chassis(service):
        about = service.structure(path)
        thermal = service.get(link(about.get("Thermal")))
        fans += (_sensor(f, "Reading") for f in objects(thermal, "Fans"))
        temperatures += (_sensor(t, "ReadingCelsius") for t in objects(thermal, "Temperatures"))
        if not thermal and (subsystem := service.get(link(about.get("ThermalSubsystem")))):
            fans += (_sensor(service.get(p), "") for p in service.members(link(subsystem.get("Fans"))))
    known = ("ok", *_STATUS.values())
    return tuple(f for f in fans if f.status in known), tuple(t for t in temperatures if t.status in known)


def _chassis(service: Service, systems: list[Resource]) -> list[str]:
    """Those that hold the systems; a GPU board has dozens more, one for each part."""
    linked = (link(one) for about in systems for one in objects(about, "Links", "Chassis"))
    return list(dict.fromkeys(path for path in linked if path))[:4] or service.members(f"{ROOT}/Chassis")[:2]


def _all_chassis(service: Service) -> list[str]:
    return _chassis(service, [service.structure(path) for path in service.members(f"{ROOT}/Systems")[:4]])


def _health(about: Resource) -> str:
    return text(about, "Status", "HealthRollup") or text(about, "Status", "Health")


def _leaks(service: Service, chassis: Resource) -> Iterator[Leak]:
    subsystem = service.get(link(chassis.get("ThermalSubsystem")))
    detection = service.get(link(subsystem.get("LeakDetection")))
    if not detection or _health(detection) == "OK":
        return
    for path in service.members(link(detection.get("LeakDetectors"))):
        about = service.get(path)
        yield Leak(name_of(path), text(about, "DetectorState") or text(about, "Status", "Health"))


def _processors(service: Service, path: str, about: Resource) -> list[str]:
    members = service.members(link(about.get("Processors")) or f"{path}/Processors")
    return [name for member in members if "GPU" in (name := name_of(member))]


def _metric_values(service: Service) -> Iterator[tuple[str, str]]:
    """The property and the value of each metric in the reports of a GPU board."""
    for path in service.members(f"{ROOT}/TelemetryService/MetricReports"):
        if _REPORTS.fullmatch(name_of(path)):
            values = service.get(path).get("MetricValues")
            for one in values if isinstance(values, list) else ():
                if isinstance(one, dict):
                    yield str(one.get("MetricProperty"))[:300], str(one.get("MetricValue"))[:100]


def _supply(supply: Resource) -> str:
    """Empty where the service says nothing about the supply: older AMI firmware has no Status at all."""
    state, health = text(supply, "Status", "State"), text(supply, "Status", "Health")
    if state in ("Absent", ""):
        return state
    words = ["Presence detected"]
    if state == "UnavailableOffline" or (health == "Critical" and text(supply, "LineInputStatus") == "LossOfInput"):
        words.append("Power Supply AC lost")
    elif health == "Critical":
        words.append("Failure detected")
    elif health == "Warning":
        words.append("Predictive failure")
    return ", ".join(words)


def _redundancy(one: Resource) -> str:
    return {"OK": "Fully Redundant", "Warning": "Redundancy Degraded", "Critical": "Redundancy Lost"}.get(
        text(one, "Status", "Health"), ""
    )


def _sensor(about: Resource, reading: str) -> Sensor:
    state, health = text(about, "Status", "State"), text(about, "Status", "Health")
    status = _STATUS.get(health, "ok") if state == "Enabled" else "ns"
    value = within(about, reading) if reading else None
    name = text(about, "Name") or text(about, "FanName") or text(about, "MemberId") or text(about, "Id")
    shown = f"{value} {'degrees C' if reading == 'ReadingCelsius' else text(about, 'ReadingUnits')}".strip()
    return Sensor(name, status, "", shown if isinstance(value, int | float) else f"{state}, {health}".strip(", "))
