"""PCIe errors that a GPU counts itself, for machines on which AER is hidden from the system. Pure but `read`.

Source: NVML's fields NVML_FI_DEV_PCIE_COUNT_*. Where sysfs has the counters of AER, pcie_aer reads them, and the GPU's
own say the same.
"""

from collections.abc import Iterator, Mapping

from nodetriage.checks.model import Finding, Gpu, Host, Scalar, Severity
from nodetriage.checks.readers.gpu import number
from nodetriage.checks.rules.counters import increase, per_hour

_CORRECTED = (
    "correctable", "receiver_errors", "bad_tlps", "bad_dllps", "naks_sent", "naks_received", "lcrc_errors",
    "lane_errors", "recoveries",
)  # fmt: skip
_UNCORRECTED = {"fatal": Severity.CRITICAL, "nonfatal": Severity.MAJOR}
_RETRAINS = "recoveries"  # each change of speed is one too, so they are no error where they are alone


def read(host: Host, gpu: Gpu) -> dict[str, int]:
    """By kind; empty where the machine shows the counters of AER."""
    if host.exists(f"/sys/bus/pci/devices/{gpu.pci}/aer_dev_correctable"):
        return {}
    kinds = (*_CORRECTED, *_UNCORRECTED)
    return {kind: count for kind in kinds if (count := number(gpu, f"pcie_{kind}")) is not None}


def judge(
    pci: str, uuid: str, before: Mapping[str, int], now: Mapping[str, int], waited_s: float, most_per_hour: float
) -> Iterator[Finding]:
    """One finding: an uncorrected error says more than the corrected ones that come with it."""
    new = {kind: grown for kind, count in now.items() if (grown := increase(before.get(kind), count))}
    retrains: dict[str, Scalar] = {"recoveries": new[_RETRAINS]} if _RETRAINS in new else {}
    for kind, severity in _UNCORRECTED.items():
        if kind in new:
            yield Finding(pci, "gpu_pcie_uncorrected", severity, {"kind": kind, "new": new[kind], "uuid": uuid})
            return
    kinds = [kind for kind in _CORRECTED if kind in new and kind != _RETRAINS]
    worst = max(kinds, key=new.__getitem__, default="")
    if worst and (rate := per_hour(new[worst], waited_s)) > most_per_hour:
        evidence: dict[str, Scalar] = {"kind": worst, "per_hour": round(rate, 1), **retrains, "uuid": uuid}
        yield Finding(pci, "gpu_pcie_errors", Severity.WARNING, evidence)
