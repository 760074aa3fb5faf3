"""NVLinks of GPUs and their part in an NVLink fabric.

NVML: nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkErrorCounter, the NVLink fields of nvmlDeviceGetFieldValues (numbers
of errors since the driver was loaded), nvmlDeviceGetGpuFabricInfoV.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetriage.checks.model import Gpu, NvLink
from nodetriage.checks.readers.gpu import number

# nvmlGpuFabricInfo: states; parts of the health mask of two bits each, with the value that is bad; one of four bits.
NOT_STARTED, IN_PROGRESS, COMPLETED = 1, 2, 3
_HEALTH = {
    "degraded_bandwidth": (0, 1),
    "route_recovery": (2, 1),
    "route_unhealthy": (4, 1),
    "access_timeout": (6, 1),
    "partition_unassigned": (12, 2),  # NVML_GPU_FABRIC_HEALTH_MASK_PARTITION_ASSIGNED_FALSE
    "manager_disconnected": (14, 2),  # NVML_GPU_FABRIC_HEALTH_MASK_GFM_STATE_DISCONNECTED
}
_CONFIGURATION_AT, _CONFIGURATION_GOOD = 8, (0, 1)
_CONFIGURATIONS = {
    2: "system_guid", 3: "chassis_serial", 4: "no_partition", 5: "insufficient_nvlinks", 6: "gpu_firmware",
    7: "location", 8: "gpu_state",
}  # fmt: skip
# healthSummary of version 3: what is bad where no bit of the mask says it.
_SUMMARIES = {2: "unhealthy", 3: "limited_capacity"}

_FABRIC_FACTS = ("fabric_state", "fabric_status", "fabric_clique", "fabric_health", "fabric_summary")
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
    fabric_summary: int | None = None
    fabric_cluster: str = ""  # UUID of the cluster, which with the clique names the NVLink domain
    left_fabric_s: float | None = None  # kept from earlier runs: when the state was first no longer COMPLETED
    ever_up: tuple[int, ...] = ()  # kept from earlier runs: in this boot


def links_of(gpu: Gpu, at_s: float) -> Links | None:
    """The links and the fabric of a GPU; None where it has neither. Raises ValueError for a fact that is no number."""
    links: tuple[NvLink, ...] = gpu.nvlinks or ()
    fabric = {name: number(gpu, name) for name in _FABRIC_FACTS}
    if not links and not fabric["fabric_state"]:
        return None
    counters = {str(link.link): dict(link.counters) for link in links if link.counters}
    totals = {name: count for name in TOTALS if (count := number(gpu, f"nvlink_{name}")) is not None}
    if totals and not counters:
        counters[ALL_LINKS] = totals
    up = tuple(link.link for link in links if link.active)
    down = tuple(link.link for link in links if not link.active)
    mig = bool(number(gpu, "mig_enabled"))
    cluster = str(gpu.facts.get("fabric_cluster", ""))[:64]
    return Links(gpu.pci, gpu.uuid, at_s, mig, up, down, counters, **fabric, fabric_cluster=cluster, ever_up=up)


def unhealthy(mask: int, summary: int | None = None) -> list[str]:
    """The names of the bad parts in the fabric's health mask; the summary's word where the mask has none."""
    bad = [name for name, (at, value) in _HEALTH.items() if mask >> at & 3 == value]
    if mask >> _CONFIGURATION_AT & 15 not in _CONFIGURATION_GOOD:
        bad.append("incorrect_configuration")
    if not bad and summary in _SUMMARIES:
        bad.append(_SUMMARIES[summary])
    return bad


def configuration(mask: int) -> str | None:
    """What is wrong with the fabric's configuration, by the health mask; None where nothing is."""
    value = mask >> _CONFIGURATION_AT & 15
    return None if value in _CONFIGURATION_GOOD else _CONFIGURATIONS.get(value, f"code_{value}")
