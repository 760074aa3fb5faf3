"""What the NVIDIA driver logs beside Xid and SXid: GPUs that do not start, hung firmware, NVSwitch and UVM that stop.

Source: the kernel log, by the table rules/kernel/nvidia.py. The part is the GPU's PCI address where the line has
it, else the driver, with the driver's own number of the GPU. A load of the driver ends these faults.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodetriage.checks.model import NVIDIA, Check, Finding, Host, Unavailable
from nodetriage.checks.rules.kernel import nvidia
from nodetriage.checks.rules.kernel_log import (
    UNKNOWN_DEVICE,
    Event,
    KernelLogPolicy,
    Line,
    Log,
    each_line,
    folded,
    is_on_bus,
    judged,
    lines_of,
    remembered,
)

RULES = nvidia.RULES
_LOADED = "nv.loaded"
_OTHERS = (
    "driver",
    "driver uvm",
    "nvswitches",
    *(f"{kind}{n}" for kind in ("driver GPU", "nvswitch") for n in range(16)),
)


@dataclass(frozen=True, slots=True)
class Said:
    """What the driver said since it was loaded last, and whether it was loaded since the last look."""

    log: Log
    loaded: bool = False


def read(host: Host) -> Said:
    """Raises Unavailable where no part here could write any line."""
    lines = lines_of(host.kernel_log(), RULES)
    if not lines and not host.exists("/sys/module/nvidia"):
        raise Unavailable("the NVIDIA driver is not loaded")
    last = max((i for i, line in enumerate(lines) if line.rule == _LOADED), default=-1)
    events = tuple(folded(_of_this_load(lines[last + 1 :])))
    addresses = tuple(d.address for d in host.pci_devices() if d.vendor == NVIDIA) if lines else None
    return Said(Log(events, addresses or None, host.boottime_s() if events else 0.0), last >= 0)


def _of_this_load(lines: Sequence[Line]) -> Iterable[Event]:
    return each_line(lines, RULES)


def judge(now: Said, before: Said | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now.log, before.log if before else None, RULES, policy, is_on_bus)


def clears(now: Said, before: Said | None) -> Iterable[tuple[str, str]]:
    """All faults of the driver, once it was loaded anew."""
    devices = (remembered(before.log if before else None, now.log).devices or ()) if now.loaded else None
    if devices is not None:
        yield from ((part, fault) for part in (*devices, *_OTHERS) for fault in RULES.faults)


def next_state(before: Said | None, now: Said) -> Said:
    return Said(remembered(before.log if before else None, now.log))


CHECK = Check(
    name="gpu_driver_errors",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=(*RULES.faults, UNKNOWN_DEVICE),
    next_state=next_state,
    clears=clears,
    kernel_pattern=RULES,
)
