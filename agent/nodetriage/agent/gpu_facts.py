"""What is asked of each GPU beside its names and rows: a table of facts and NVML calls. A new fact is one line.

Source: the NVML API reference. The facts' names are the keys of model.Gpu.facts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from nodetriage.checks.model import Scalar


def _first(answer: Any) -> int:
    return int(answer[0])


@dataclass(frozen=True, slots=True)
class Question:
    """A fact about a GPU and the NVML call that answers it. Questions with one call in common cost one call."""

    fact: str
    call: str
    arguments: tuple[int, ...] = ()
    pick: Callable[[Any], Scalar] = int
    fills: str = ""  # the structure that the call fills in, by pynvml's name; `pick` then gets that
    often: bool = True  # part of every look; else only of the whole ones
    refusals: tuple[int, ...] = ()  # NVML errors that answer the question; `pick` then gets the error, or 0


def _pids(answer: Any) -> str:
    return " ".join(str(process.pid) for process in answer)


_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX = 0, 1, 2
_CORRUPTED_INFOROM = 14
_FABRIC = ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
_SRAM = ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")

QUESTIONS = (
    Question("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _VOLATILE)),
    Question("temperature_c", "nvmlDeviceGetTemperature", (0,)),
    Question("temperature_slowdown_c", "nvmlDeviceGetTemperatureThreshold", (_SLOWDOWN,)),
    Question("temperature_margin_c", "nvmlDeviceGetMarginTemperature"),  # to the slowdown; since Hopper
    Question("temperature_memory_max_c", "nvmlDeviceGetTemperatureThreshold", (_MEMORY_MAX,)),
    Question("clocks_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
    Question("vbios", "nvmlDeviceGetVbiosVersion", pick=str, often=False),
    Question("persistence_mode", "nvmlDeviceGetPersistenceMode", often=False),
    Question("mig_enabled", "nvmlDeviceGetMigMode", pick=_first, often=False),
    Question("ecc_enabled", "nvmlDeviceGetEccMode", pick=_first, often=False),
    Question("ecc_corrected_volatile", "nvmlDeviceGetTotalEccErrors", (_CORRECTED, _VOLATILE), often=False),
    Question("sram_uncorrected_parity", _SRAM[0], pick=attrgetter("volatileUncParity"), fills=_SRAM[1], often=False),
    Question("sram_uncorrected_secded", _SRAM[0], pick=attrgetter("volatileUncSecDed"), fills=_SRAM[1], often=False),
    Question("sram_threshold_exceeded", _SRAM[0], pick=attrgetter("bThresholdExceeded"), fills=_SRAM[1], often=False),
    Question(
        "inforom_error",
        "nvmlDeviceValidateInforom",
        refusals=(_CORRUPTED_INFOROM,),
        often=False,
    ),
    Question("processes", "nvmlDeviceGetComputeRunningProcesses", pick=_pids, often=False),
    Question("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", often=False),
    Question("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", often=False),
    Question("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", often=False),
    Question("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", often=False),
    Question("pcie_replays", "nvmlDeviceGetPcieReplayCounter", often=False),
    Question("temperature_shutdown_c", "nvmlDeviceGetTemperatureThreshold", (_SHUTDOWN,), often=False),
    Question("power_mw", "nvmlDeviceGetPowerUsage", often=False),
    Question("fabric_state", _FABRIC[0], pick=attrgetter("state"), fills=_FABRIC[1], often=False),
    Question("fabric_status", _FABRIC[0], pick=attrgetter("status"), fills=_FABRIC[1], often=False),
    Question("fabric_clique", _FABRIC[0], pick=attrgetter("cliqueId"), fills=_FABRIC[1], often=False),
    Question("fabric_health", _FABRIC[0], pick=attrgetter("healthMask"), fills=_FABRIC[1], often=False),
)

# What NVML serves as a field (nvmlDeviceGetFieldValues), by the numbers of nvml.h: all of them in one call.
FIELDS = (("recovery_action", 230), ("memory_temperature_c", 82))
WHOLE_FIELDS = (
    *FIELDS,
    ("retired_pages_single_bit", 29),
    ("retired_pages_double_bit", 30),
    ("retired_pages_pending", 31),
    ("nvlink_count", 91),
    ("nvlink_crc_flits", 38),  # these four are of all links together; the driver keeps them up to Ampere
    ("nvlink_crc_data", 45),
    ("nvlink_replays", 52),
    ("nvlink_recoveries", 59),
)

# The same for one link: the data link layer's up to NVLink 4, then NVLink 5.
LINK_COUNTERS = (
    ("replays", 161),
    ("recoveries", 162),
    ("crc_errors", 163),
    ("malformed_packets", 206),
    ("buffer_overruns", 207),
    ("receive_errors", 208),
    ("integrity_errors", 211),
    ("failed_recoveries", 214),
    ("recovery_events", 215),
)


def number(value: Any) -> int | float:
    """An nvmlFieldValue_t by its own type."""
    names = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    found: int | float = getattr(value.value, names.get(value.valueType, "ullVal"))
    return found


def address(bus_id: str | bytes) -> str:
    """NVML's 00000000:1A:00.0 as the kernel writes it: 0000:1a:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
