"""What the agent asks NVML about each GPU, beyond names and rows: a table of facts and calls. A new fact is one line.

Source: the NVML API reference. The names of facts are the keys of model.Gpu.facts.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from nodetriage.checks.model import Scalar


def _first(answer: Any) -> int:
    return int(answer[0])


def _second(answer: Any) -> int:
    return int(answer[1])


@dataclass(frozen=True, slots=True)
class Question:
    """A fact about a GPU and the NVML call that gives it. Questions with the same call cost one call."""

    fact: str
    call: str
    arguments: tuple[int, ...] = ()
    quick: bool = False  # asked also in inventories without `whole`
    pick: Callable[[Any], Scalar] = int
    # pynvml's names of the structures that the call fills, the newest version first; `pick` then gets one of them.
    fills: tuple[str, ...] = ()
    refusals: tuple[int, ...] = ()  # NVML errors that answer the question; `pick` then gets the error, or 0


def _pids(answer: Any) -> str:
    return " ".join(str(process.pid) for process in answer)


_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX = 0, 1, 2
_SM_CLOCK = 1
_CORRUPTED_INFOROM = 14
_FABRIC = ("nvmlDeviceGetGpuFabricInfoV", ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"))
_SRAM = ("nvmlDeviceGetSramEccErrorStatus", ("c_nvmlEccSramErrorStatus_v1_t",))


def _cluster(fabric: Any) -> str:
    """The cluster's UUID; "" on machines that are in no cluster, where all its bytes are 0."""
    raw = bytes(fabric.clusterUuid)
    return str(uuid.UUID(bytes=raw)) if any(raw) else ""


def _summary(fabric: Any) -> int:
    """0, "not supported", in version 2."""
    return int(getattr(fabric, "healthSummary", 0))


# Most are only for inventories with `whole`: the frequent ones ask only about what ends jobs.
QUESTIONS = (
    Question("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _VOLATILE)),
    Question("temperature_c", "nvmlDeviceGetTemperature", (0,)),
    Question("temperature_slowdown_c", "nvmlDeviceGetTemperatureThreshold", (_SLOWDOWN,)),
    Question("temperature_margin_c", "nvmlDeviceGetMarginTemperature"),  # to the slowdown; since Hopper
    Question("temperature_memory_max_c", "nvmlDeviceGetTemperatureThreshold", (_MEMORY_MAX,)),
    Question("clocks_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
    Question("vbios", "nvmlDeviceGetVbiosVersion", pick=str),
    Question("persistence_mode", "nvmlDeviceGetPersistenceMode", quick=True),
    Question("mig_enabled", "nvmlDeviceGetMigMode", pick=_first),
    Question("ecc_enabled", "nvmlDeviceGetEccMode", pick=_first),
    Question("ecc_corrected_volatile", "nvmlDeviceGetTotalEccErrors", (_CORRECTED, _VOLATILE)),
    Question("sram_uncorrected_parity", _SRAM[0], pick=attrgetter("volatileUncParity"), fills=_SRAM[1]),
    Question("sram_uncorrected_secded", _SRAM[0], pick=attrgetter("volatileUncSecDed"), fills=_SRAM[1]),
    Question("sram_threshold_exceeded", _SRAM[0], pick=attrgetter("bThresholdExceeded"), fills=_SRAM[1]),
    Question(
        "inforom_error",
        "nvmlDeviceValidateInforom",
        refusals=(_CORRUPTED_INFOROM,),
    ),
    Question("processes", "nvmlDeviceGetComputeRunningProcesses", pick=_pids),
    Question("memory_used_bytes", "nvmlDeviceGetMemoryInfo", pick=attrgetter("used")),  # with what the driver reserves
    Question("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    Question("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    Question("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    Question("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    Question("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    Question("temperature_shutdown_c", "nvmlDeviceGetTemperatureThreshold", (_SHUTDOWN,)),
    Question("power_mw", "nvmlDeviceGetPowerUsage"),
    Question("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit"),
    Question("clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (_SM_CLOCK,)),
    Question("clock_application_mhz", "nvmlDeviceGetApplicationsClock", (_SM_CLOCK,)),
    Question("addressing_mode", "nvmlDeviceGetAddressingMode"),
    Question("repair_pending_channel", "nvmlDeviceGetRepairStatus", pick=_first),
    Question("repair_pending_tpc", "nvmlDeviceGetRepairStatus", pick=_second),
    Question("memory_unrepairable", "nvmlDeviceGetUnrepairableMemoryFlag_v1"),
    Question("fabric_state", _FABRIC[0], pick=attrgetter("state"), fills=_FABRIC[1]),
    Question("fabric_status", _FABRIC[0], pick=attrgetter("status"), fills=_FABRIC[1]),
    Question("fabric_clique", _FABRIC[0], pick=attrgetter("cliqueId"), fills=_FABRIC[1]),
    Question("fabric_health", _FABRIC[0], pick=attrgetter("healthMask"), fills=_FABRIC[1]),
    Question("fabric_summary", _FABRIC[0], pick=_summary, fills=_FABRIC[1]),
    Question("fabric_cluster", _FABRIC[0], pick=_cluster, fills=_FABRIC[1]),
)

QUICK_QUESTIONS = tuple(question for question in QUESTIONS if question.quick)

# Facts that NVML gives as fields (nvmlDeviceGetFieldValues), with the numbers from nvml.h: all in one call.
FIELDS = (
    ("recovery_action", 230),
    ("memory_temperature_c", 82),
    ("energy_mj", 83),  # since the driver was loaded or the GPU was reset
)
WHOLE_FIELDS = (
    *FIELDS,
    ("retired_pages_single_bit", 29),
    ("retired_pages_double_bit", 30),
    ("retired_pages_pending", 31),
    ("nvlink_count", 91),
    ("nvlink_crc_flits", 38),  # these four count all links together; drivers have them up to Ampere
    ("nvlink_crc_data", 45),
    ("nvlink_replays", 52),
    ("nvlink_recoveries", 59),
    ("slowed_thermal_ns", 75),
    ("slowed_board_limit_ns", 77),
    ("slowed_sw_thermal_slowdown_ns", 269),
    ("slowed_hw_thermal_slowdown_ns", 270),
    ("slowed_hw_power_brake_ns", 271),
    ("power_smoothing_lifetime_percent", 258),
    ("rows_inactive_correctable", 301),
    ("rows_inactive_uncorrectable", 302),
    ("banks_remapped", 303),
    ("banks_inactive", 304),
    ("banks_with_all_spares", 305),
    ("banks_without_spares", 306),
    ("bank_remap_pending", 307),
    ("c2c_count", 170),
    # Of the PCIe link, counted by the GPU itself.
    ("pcie_recoveries", 169),  # of the link: from L0 to the state Recovery
    ("pcie_correctable", 173),
    ("pcie_naks_received", 174),
    ("pcie_receiver_errors", 175),
    ("pcie_bad_tlps", 176),
    ("pcie_naks_sent", 177),
    ("pcie_bad_dllps", 178),
    ("pcie_nonfatal", 179),
    ("pcie_fatal", 180),
    ("pcie_lcrc_errors", 182),
    ("pcie_lane_errors", 183),
)

LINK_STATE = 165  # of one link
# NVML_NVLINK_STATE_*: 1 is active, 2 asleep to save power, 3 active with its traffic disabled, which carries nothing.
UP_STATES = (1, 2)

# Counters of one link: of the data link layer up to NVLink 4, then of NVLink 5.
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
    ("effective_errors", 219),  # that FEC could not correct
    ("symbol_errors", 221),
    ("plr_blocks", 294),  # sent by the physical layer's retry, and sent again
    ("plr_retries", 295),
)
# Of one link between GPU and Grace CPU; 171 is 1 where it is active, 234 is 1 where it sleeps to save power.
C2C_FIELDS = (
    ("active", 171),
    ("mbps", 172),
    ("errors", 231),
    ("replays", 232),
    ("replays_b2b", 233),
    ("asleep", 234),
)
MOST_C2C_LINKS = 64


# nvmlFieldValue_t: field, scope, timestamp, latency, type of the value, error, value. Reading pynvml's own
# structures takes ten times as long, and a whole inventory has hundreds.
FIELD_VALUE = struct.Struct("<IIqqII8s")
_TYPES = {0: "<d", 1: "<I", 2: "<Q", 3: "<Q", 4: "<q", 5: "<i", 6: "<H"}  # nvmlValueType_t


def number(kind: int, raw: bytes) -> int | float:
    """An nvmlValue_t by its type."""
    found: int | float
    (found,) = struct.unpack_from(_TYPES.get(kind, "<Q"), raw)
    return found


def address(bus_id: str | bytes) -> str:
    """NVML's 00000000:1A:00.0 in the kernel's form: 0000:1a:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
