"""GPUs that are gone, or no longer answer.

Compares three views: the PCI bus (/sys/bus/pci/devices, Documentation/ABI/testing/sysfs-bus-pci), NVML's list
(nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex) and what the profile expects. A loop over the GPUs that NVML returns
misses the one that is gone. A GPU that the site gave to a virtual machine (its driver is vfio-pci or a stub), or that
the driver leaves out by its own setting (nvmlGetExcludedDeviceInfoByIndex), is set aside and not missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Confidence, Finding, NvmlFailure, Scalar, Severity, Unavailable
from nodetriage.checks.model.kernel_line import any_of
from nodetriage.checks.readers.gpu_inventory import Answer, Inventory, read
from nodetriage.checks.readers.nvidia_log import OFF_BUS, xids

_DRIVER_FAILURES = (NvmlFailure.DRIVER_NOT_LOADED, NvmlFailure.VERSION_MISMATCH)
_FAILURES = {NvmlFailure.IN_USE: Severity.WARNING, NvmlFailure.OTHER: Severity.MAJOR}  # the others are critical


@dataclass(frozen=True, slots=True)
class Policy:
    """The GPUs that the node should have; profiles set their number."""

    expected_gpus: int = 0  # 0: any number is right
    expected_pci: tuple[str, ...] = ()  # addresses as lspci -D prints them, so that a missing GPU has a name
    ignore_pci: tuple[str, ...] = ()  # addresses of GPUs that the site set aside on purpose: none of them is missing
    many_refused: int = 4  # so many failing calls, or more, on a GPU that answers others are major


def next_state(before: Inventory | None, now: Inventory) -> Inventory:
    """A GPU that is set aside now need not be here later: whoever did it may also take it away."""
    ever = {*now.bus, *(before.ever if before else ())} - now.aside.keys()
    return replace(now, ever=tuple(sorted(ever)))


def judge(now: Inventory, before: Inventory | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where there is no GPU, none is expected and none was here earlier in this boot."""
    ignored = {address.lower() for address in policy.ignore_pci}
    aside = now.aside.keys() | ignored
    expected = {a.lower() for a in policy.expected_pci} | set(before.ever if before else ())
    expected -= aside
    bus = [address for address in now.bus if address not in ignored]
    if not bus and not now.nvml and not expected and not now.aside and not policy.expected_gpus:
        raise Unavailable("no NVIDIA GPU on the PCI bus")
    for address, driver in now.aside.items():
        yield Finding(address, "gpu_set_aside", Severity.INFO, {"driver": driver})
    missing = sorted(expected - set(bus))
    for address in missing:
        gone = now.nvml is not None and address not in {answer.pci for answer in now.nvml}
        confidence = Confidence.WITNESSED if gone else Confidence.STATE
        yield Finding(address, "gpu_missing", Severity.CRITICAL, {"on_bus": len(bus)}, confidence)
    if not missing and len(bus) + len(aside) < policy.expected_gpus:
        evidence: dict[str, Scalar] = {"on_bus": len(bus), "expected": policy.expected_gpus}
        yield Finding("gpus", "gpu_missing", Severity.CRITICAL, evidence)
    if now.nvml is None:
        if bus and now.why:
            severity = Severity.CRITICAL if policy.expected_gpus else Severity.WARNING
            yield Finding("nvidia-driver", "gpu_driver_unusable", severity, {"why": now.why, "on_bus": len(bus)})
        return
    yield from _unanswered([a for a in now.nvml if a.pci not in ignored], policy)
    # The site set fewer GPUs than there are: it does not miss this one.
    enough = 0 < policy.expected_gpus <= sum(a.failure is None for a in now.nvml)
    for address in sorted(set(bus) - {a.pci for a in now.nvml}):
        severity = Severity.WARNING if enough else Severity.CRITICAL
        yield Finding(address, "gpu_not_enumerated", severity, {"nvml_count": len(now.nvml)})


def _unanswered(nvml: Sequence[Answer], policy: Policy) -> Iterator[Finding]:
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
    faults=(
        "gpu_missing", "gpu_not_enumerated", "gpu_not_answering", "gpu_calls_failing", "gpu_driver_unusable",
        "gpu_set_aside",
    ),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    kernel_wakes=any_of((xids(79, 119, 120, 143, 154), OFF_BUS)),
    wakes_on=("udev:pci",),
    raise_after=2,  # a driver lists no GPU for some seconds while it is reloaded
    in_prolog=True,
)  # fmt: skip
