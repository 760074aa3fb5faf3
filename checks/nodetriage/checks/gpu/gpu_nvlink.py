"""NVLinks that are down or count errors, and GPUs that are not ready in their NVLink fabric.

Source: NVML's NVLink fields (state, data link layer, NVLink 5), nvmlDeviceGetGpuFabricInfoV. Some
links of a bridged or PCIe card lead nowhere: only those count that the profile expects or that were up in this boot.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.model.kernel_line import any_of
from nodetriage.checks.readers import nvlink
from nodetriage.checks.readers.gpu import answering
from nodetriage.checks.readers.nvidia_log import SXIDS, xids
from nodetriage.checks.readers.nvlink import Links
from nodetriage.checks.rules.counters import keep
from nodetriage.checks.rules.gpu import nvlink_compare, nvlink_fabric
from nodetriage.checks.rules.gpu.nvlink_compare import growth

_FAILING = ("gpu_nvlink_failing", Severity.MAJOR)
_PER_S = {"crc_flits": 100.0, "crc_data": 100.0, "crc_errors": 100.0, "replays": 10.0}
_SERIOUS = ("failed_recoveries", "recoveries", "malformed_packets", "buffer_overruns")


@dataclass(frozen=True, slots=True)
class Policy:
    """What should be up, and which errors are more than a warning."""

    expected_links: int = 0  # that are up on each GPU; 0: any number is right
    expect_fabric: bool = False  # there are NVSwitches, so each GPU has to be in the fabric
    expect_clique: bool = False  # the fabric spans nodes, so each GPU has to be in a clique
    fabric_grace_s: float = 600.0  # after a boot or after a GPU left the fabric, for the Fabric Manager
    per_s: Mapping[str, float] = field(default_factory=lambda: _PER_S)  # errors a second, from which a link is failing
    serious: tuple[str, ...] = _SERIOUS  # counters of which one error is enough
    uneven_times: float = 100.0  # as many corrected errors as the median of the GPU's links make a link uneven
    uneven_least: int = 10_000  # and so many between two runs


def read(host: Host) -> tuple[Links, ...]:
    at_s = host.boottime_s()
    found = tuple(links for gpu in answering(host, whole=True) if (links := nvlink.links_of(gpu, at_s)))
    if not found:
        raise Unavailable("no GPU here has NVLink or a fabric")
    return found


def next_state(before: tuple[Links, ...] | None, now: tuple[Links, ...]) -> tuple[Links, ...]:
    earlier = {gpu.uuid: gpu for gpu in before or ()}
    return keep(before, (_with_past(earlier.get(gpu.uuid), gpu) for gpu in now))


def _with_past(old: Links | None, gpu: Links) -> Links:
    ever_up = tuple(sorted({*gpu.up, *(old.ever_up if old else ())}))
    return replace(gpu, ever_up=ever_up, left_fabric_s=nvlink_fabric.left_fabric_s(old, gpu))


def judge(now: tuple[Links, ...], before: tuple[Links, ...] | None, policy: Policy) -> Iterator[Finding]:
    earlier = {gpu.uuid: gpu for gpu in before or ()}
    for gpu in now:
        old = earlier.get(gpu.uuid)
        yield from _down(gpu, old.ever_up if old else (), policy)
        yield from nvlink_fabric.judge(gpu, old, policy)
        if old and gpu.at_s > old.at_s:
            yield from _errors(old, gpu, policy)
            yield from nvlink_compare.judge(old, gpu, policy.uneven_times, policy.uneven_least)
    yield from nvlink_fabric.split(now)


def _down(gpu: Links, ever_up: tuple[int, ...], policy: Policy) -> Iterator[Finding]:
    """With MIG the driver itself switches links off."""
    lost = [link for link in gpu.down if link in ever_up]
    if gpu.mig or not (lost or len(gpu.up) < policy.expected_links):
        return
    links = ",".join(map(str, lost or gpu.down))
    evidence: dict[str, Scalar] = {"links": links, "up": len(gpu.up), "uuid": gpu.uuid, **nvlink_fabric.domain(gpu)}
    if policy.expected_links:
        evidence["expected"] = policy.expected_links
    yield Finding(gpu.pci, "gpu_nvlink_down", Severity.CRITICAL, evidence)


def _errors(old: Links, gpu: Links, policy: Policy) -> Iterator[Finding]:
    """One finding for each link, about its worst counter."""
    seconds, worst = gpu.at_s - old.at_s, dict[str, Finding]()
    for (link, counter), new in growth(old, gpu).items():
        limit = policy.per_s.get(counter)
        serious = counter in policy.serious or (limit is not None and new / seconds >= limit)
        fault, severity = _FAILING if serious else ("gpu_nvlink_errors", Severity.WARNING)
        evidence: dict[str, Scalar] = {
            "link": link, "counter": counter, "new": new, "per_s": round(new / seconds, 4), "uuid": gpu.uuid,
            **nvlink_fabric.domain(gpu),
        }  # fmt: skip
        if link not in worst or severity > worst[link].severity:
            worst[link] = Finding(f"{gpu.pci}/nvlink{link}", fault, severity, evidence)
    yield from worst.values()


CHECK = Check(
    name="gpu_nvlink",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "gpu_nvlink_down", "gpu_fabric_incomplete", "gpu_fabric_split", "gpu_nvlink_errors", "gpu_nvlink_failing",
        "gpu_nvlink_uneven",
    ),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    kernel_wakes=any_of((xids(74, 136, *range(144, 151)), SXIDS)),
    raise_after=2,  # after a boot the links come up one by one
)  # fmt: skip
