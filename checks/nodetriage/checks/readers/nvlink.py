"""NVLinks of GPUs and their part in an NVLink fabric.

NVML: nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkErrorCounter, the NVLink fields of nvmlDeviceGetFieldValues (numbers
of errors since the driver was loaded), nvmlDeviceGetGpuFabricInfoV.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetriage.checks.model import Gpu, NvLink
from nodetriage.checks.readers.gpu import number

# nvmlGpuFabricInfo: states; parts of the health mask of two bits each (1 is bad), and one of four bits.
NOT_STARTED, IN_PROGRESS, COMPLETED = 1, 2, 3
_HEALTH = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4, "access_timeout": 6}
_CONFIGURATION_AT, _CONFIGURATION_GOOD = 8, (0, 1)

TOTALS = ("crc_flits", "crc_data", "replays", "recoveries")
ALL_LINKS = "all"


@dataclass(frozen=True, slots=True)
class Links:
    """NVLinks and fabric of one GPU. `counters` are by link, or under "all" where the driver has only the sum."""

    pci: str
    uuid: str
    at_s: float  # CLOCK_BOOTTIME of the reading
    mig: bool
    up: tuple[int, ...]
    down: tuple[int, ...]
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fabric_state: int | None = None
    fabric_status: int | None = None  # an NVML error code, valid in the state COMPLETED
    fabric_clique: int | None = None
    fabric_health: int | None = None
    ever_up: tuple[int, ...] = ()  # kept from earlier runs: in this boot


def links_of(gpu: Gpu, at_s: float) -> Links | None:
    """The links and the fabric of a GPU; None where it has neither. Raises ValueError for a fact that is no number."""
    links: tuple[NvLink, ...] = gpu.nvlinks or ()
    fabric = {name: number(gpu, name) for name in ("fabric_state", "fabric_status", "fabric_clique", "fabric_health")}
    if not links and not fabric["fabric_state"]:
        return None
    counters = {str(link.link): dict(link.counters) for link in links if link.counters}
    totals = {name: count for name in TOTALS if (count := number(gpu, f"nvlink_{name}")) is not None}
    if totals and not counters:
        counters[ALL_LINKS] = totals
    up = tuple(link.link for link in links if link.active)
    down = tuple(link.link for link in links if not link.active)
    mig = bool(number(gpu, "mig_enabled"))
    return Links(gpu.pci, gpu.uuid, at_s, mig, up, down, counters, **fabric, ever_up=up)


def unhealthy(mask: int) -> list[str]:
    """The names of the bad parts in the fabric's health mask."""
    bad = [name for name, at in _HEALTH.items() if mask >> at & 3 == 1]
    if mask >> _CONFIGURATION_AT & 15 not in _CONFIGURATION_GOOD:
        bad.append("incorrect_configuration")
    return bad
