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


_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_SHUTDOWN, _SLOWDOWN = 0, 1
_FABRIC = ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
_SRAM = ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")

QUESTIONS = (
    Question("vbios", "nvmlDeviceGetVbiosVersion", pick=str),
    Question("persistence_mode", "nvmlDeviceGetPersistenceMode"),
    Question("ecc_enabled", "nvmlDeviceGetEccMode", pick=_first),
    Question("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _VOLATILE)),
    Question("ecc_corrected_volatile", "nvmlDeviceGetTotalEccErrors", (_CORRECTED, _VOLATILE)),
    Question("sram_uncorrected_parity", _SRAM[0], pick=attrgetter("volatileUncParity"), fills=_SRAM[1]),
    Question("sram_uncorrected_secded", _SRAM[0], pick=attrgetter("volatileUncSecDed"), fills=_SRAM[1]),
    Question("sram_threshold_exceeded", _SRAM[0], pick=attrgetter("bThresholdExceeded"), fills=_SRAM[1]),
    Question("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
    Question("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    Question("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    Question("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    Question("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    Question("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    Question("temperature_c", "nvmlDeviceGetTemperature", (0,)),
    Question("temperature_slowdown_c", "nvmlDeviceGetTemperatureThreshold", (_SLOWDOWN,)),
    Question("temperature_shutdown_c", "nvmlDeviceGetTemperatureThreshold", (_SHUTDOWN,)),
    Question("power_mw", "nvmlDeviceGetPowerUsage"),
    Question("clocks_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
    Question("mig_enabled", "nvmlDeviceGetMigMode", pick=_first),
    Question("fabric_state", _FABRIC[0], pick=attrgetter("state"), fills=_FABRIC[1]),
    Question("fabric_status", _FABRIC[0], pick=attrgetter("status"), fills=_FABRIC[1]),
    Question("fabric_clique", _FABRIC[0], pick=attrgetter("cliqueId"), fills=_FABRIC[1]),
    Question("fabric_health", _FABRIC[0], pick=attrgetter("healthMask"), fills=_FABRIC[1]),
)

# What NVML serves as a field (nvmlDeviceGetFieldValues): all of them in one call.
FIELDS = (("recovery_action", 230),)  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
