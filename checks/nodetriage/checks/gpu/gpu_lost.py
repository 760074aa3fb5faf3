"""GPUs that are gone, or no longer answer.

Compares three views: the PCI bus (/sys/bus/pci/devices, Documentation/ABI/testing/sysfs-bus-pci), NVML's list
(nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex) and what the profile expects. A loop over the GPUs that NVML returns
misses the one that is gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Confidence, Finding, Host, NvmlFailure, Scalar, Severity, Unavailable
from nodetriage.checks.model.kernel_line import any_of
from nodetriage.checks.readers.nvidia_log import OFF_BUS, xids

_DRIVER_FAILURES = (NvmlFailure.DRIVER_NOT_LOADED, NvmlFailure.VERSION_MISMATCH)
_FAILURES = {NvmlFailure.IN_USE: Severity.WARNING, NvmlFailure.OTHER: Severity.MAJOR}  # the others are critical


@dataclass(frozen=True, slots=True)
class Policy:
    """The GPUs that the node should have; profiles set their number."""

    expected_gpus: int = 0  # 0: any number is right
    expected_pci: tuple[str, ...] = ()  # addresses as lspci -D prints them, so that a missing GPU has a name
    many_refused: int = 4  # so many failing calls, or more, on a GPU that answers others are major


@dataclass(frozen=True, slots=True)
class Answer:
    """One GPU in NVML's list; `failure` is set where it does not answer."""

    pci: str
    uuid: str
    failure: NvmlFailure | None
    text: str
    refused: tuple[str, ...] = ()  # calls that gave an unexpected error


@dataclass(frozen=True, slots=True)
class Inventory:
    """`bus` are PCI addresses, without virtual functions and without GPUs that vfio-pci has."""

    bus: tuple[str, ...]
    nvml: tuple[Answer, ...] | None  # None: NVML is not available, and `why` says what is missing
    why: str = ""
    ever: tuple[str, ...] = ()  # kept from earlier runs: each address seen in this boot


def read(host: Host) -> Inventory:
    bus = tuple(
        device.address
        for device in host.pci_devices()
        if device.is_nvidia_gpu and not device.is_virtual and host.pci_driver(device) != "vfio-pci"
    )
    try:
        gpus = host.gpus()
    except Unavailable as error:
        return Inventory(bus, None, str(error), bus)
    nvml = tuple(Answer(g.pci, g.uuid, g.failure, g.failure_text, tuple(g.refused)) for g in gpus)
    return Inventory(bus, nvml, "", bus)


def next_state(before: Inventory | None, now: Inventory) -> Inventory:
    return replace(now, ever=tuple(sorted({*now.bus, *(before.ever if before else ())})))


def judge(now: Inventory, before: Inventory | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where there is no GPU, none is expected and none was here earlier in this boot."""
    expected = {*policy.expected_pci, *(before.ever if before else ())}
    if not now.bus and not now.nvml and not expected and not policy.expected_gpus:
        raise Unavailable("no NVIDIA GPU on the PCI bus")
    missing = sorted(expected - set(now.bus))
    for address in missing:
        gone = now.nvml is not None and address not in {answer.pci for answer in now.nvml}
        confidence = Confidence.WITNESSED if gone else Confidence.STATE
        yield Finding(address, "gpu_missing", Severity.CRITICAL, {"on_bus": len(now.bus)}, confidence)
    if not missing and len(now.bus) < policy.expected_gpus:
        evidence = {"on_bus": len(now.bus), "expected": policy.expected_gpus}
        yield Finding("gpus", "gpu_missing", Severity.CRITICAL, evidence)
    if now.nvml is None:
        if now.bus:
            severity = Severity.CRITICAL if policy.expected_gpus else Severity.WARNING
            yield Finding("nvidia-driver", "gpu_driver_unusable", severity, {"why": now.why, "on_bus": len(now.bus)})
        return
    yield from _unanswered(now.nvml, policy)
    for address in sorted(set(now.bus) - {a.pci for a in now.nvml}):
        yield Finding(address, "gpu_not_enumerated", Severity.CRITICAL, {"nvml_count": len(now.nvml)})


def _unanswered(nvml: tuple[Answer, ...], policy: Policy) -> Iterator[Finding]:
    for gpu in nvml:
        if gpu.refused:
            severity = Severity.MAJOR if len(gpu.refused) >= policy.many_refused else Severity.WARNING
            calls: dict[str, Scalar] = {"calls": ",".join(gpu.refused)[:200], "failing": len(gpu.refused)}
            yield Finding(gpu.pci, "gpu_calls_failing", severity, {**calls, "uuid": gpu.uuid})
        if gpu.failure in (None, NvmlFailure.NOT_ASKED):
            continue
        evidence = {"nvml": gpu.failure.value, "text": gpu.text[:200], **({"uuid": gpu.uuid} if gpu.uuid else {})}
        if gpu.failure in _DRIVER_FAILURES:  # running jobs go on and only new ones fail, so none is ended
            yield Finding(gpu.pci, "gpu_driver_unusable", Severity.MAJOR, evidence)
        else:
            yield Finding(gpu.pci, "gpu_not_answering", _FAILURES.get(gpu.failure, Severity.CRITICAL), evidence)


CHECK = Check(
    name="gpu_lost",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_missing", "gpu_not_enumerated", "gpu_not_answering", "gpu_calls_failing", "gpu_driver_unusable"),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    kernel_wakes=any_of((xids(79, 119, 120, 143, 154), OFF_BUS)),
    wakes_on=("udev:pci",),
    raise_after=2,  # a driver lists no GPU for some seconds while it is reloaded
    in_prolog=True,
)
