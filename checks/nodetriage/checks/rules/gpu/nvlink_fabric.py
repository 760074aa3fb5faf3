"""What a GPU's part in its NVLink fabric is worth: its state, its health, its place beside the node's other GPUs. Pure.

Source: nvmlGpuFabricInfo_v3_t and the NVML_GPU_FABRIC_HEALTH_MASK_* values of nvml.h.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from nodetriage.checks.model import Finding, Scalar, Severity
from nodetriage.checks.readers import nvlink
from nodetriage.checks.readers.nvlink import Links

INCOMPLETE = "gpu_fabric_incomplete"
SPLIT = "gpu_fabric_split"
# What is set up already goes on without the Fabric Manager; new jobs fail.
_MILD = frozenset({"partition_unassigned", "manager_disconnected", "unhealthy", "limited_capacity"})


class Wanted(Protocol):
    """The settings of gpu_nvlink that are about the fabric."""

    @property
    def expect_fabric(self) -> bool: ...
    @property
    def expect_clique(self) -> bool: ...
    @property
    def fabric_grace_s(self) -> float: ...


def left_fabric_s(old: Links | None, now: Links) -> float | None:
    """Since when the GPU, once in the fabric, no longer is; None where it is, or never was since the first look."""
    if now.fabric_state == nvlink.COMPLETED or old is None or not old.fabric_state:
        return None
    return now.at_s if old.fabric_state == nvlink.COMPLETED else old.left_fabric_s


def domain(gpu: Links) -> dict[str, Scalar]:
    """The NVLink domain of the GPU as evidence: nodes with the same cluster and clique share one."""
    known = {"clique": gpu.fabric_clique, "cluster": gpu.fabric_cluster or None}
    return {name: value for name, value in known.items() if value is not None}


def judge(gpu: Links, old: Links | None, policy: Wanted) -> Iterator[Finding]:
    severity, bad = _severity(gpu, old, policy)
    if severity is None:
        return
    known = {
        "state": gpu.fabric_state, "status": gpu.fabric_status, **domain(gpu), "health": ",".join(bad) or None,
        "configuration": nvlink.configuration(gpu.fabric_health or 0), "uuid": gpu.uuid,
    }  # fmt: skip
    yield Finding(gpu.pci, INCOMPLETE, severity, {k: v for k, v in known.items() if v is not None})


def _severity(gpu: Links, old: Links | None, policy: Wanted) -> tuple[Severity | None, list[str]]:
    state = gpu.fabric_state
    bad = nvlink.unhealthy(gpu.fabric_health or 0, gpu.fabric_summary) if state else []
    if state == nvlink.COMPLETED:
        alone = policy.expect_clique and gpu.fabric_clique == 0
        if gpu.fabric_status or alone or set(bad) - _MILD:
            return Severity.CRITICAL, bad
        return (Severity.MAJOR if bad else None), bad
    left_s = left_fabric_s(old, gpu)
    if not (state == nvlink.IN_PROGRESS or (state == nvlink.NOT_STARTED and policy.expect_fabric)):
        return None, bad
    if left_s is not None and gpu.at_s - left_s < policy.fabric_grace_s:
        return Severity.WARNING, bad  # the Fabric Manager was restarted: it takes the GPUs in again
    return (Severity.CRITICAL if gpu.at_s >= policy.fabric_grace_s else None), bad


def split(gpus: tuple[Links, ...]) -> Iterator[Finding]:
    """GPUs of one node in different NVLink domains: a job on the node cannot use NVLink between them."""
    inside = [gpu for gpu in gpus if gpu.fabric_state == nvlink.COMPLETED and gpu.fabric_clique is not None]
    places = Counter((gpu.fabric_cluster, gpu.fabric_clique) for gpu in inside).most_common()
    if len(places) < 2:
        return
    if places[0][1] == places[1][1]:
        yield Finding("gpus", SPLIT, Severity.MAJOR, {"domains": len(places), "gpus": len(inside)})
        return
    for gpu in inside:
        if (gpu.fabric_cluster, gpu.fabric_clique) != places[0][0]:
            most: dict[str, Scalar] = {"others_clique": places[0][0][1] or 0, "uuid": gpu.uuid}
            yield Finding(gpu.pci, SPLIT, Severity.MAJOR, {**domain(gpu), **most})
