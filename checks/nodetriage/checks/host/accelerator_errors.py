"""Accelerators of AMD, Intel and Habana that fail, hang or are reset, as the kernel logs it.

Source: the kernel log, by the table rules/kernel/other_gpus.py. The part is the PCI address;
old lines of amdgpu name none.
"""

from collections.abc import Iterator

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.rules.kernel import other_gpus
from nodetriage.checks.rules.kernel_log import UNKNOWN_DEVICE, KernelLogPolicy, Log, judged, read_log, remembered

RULES = other_gpus.RULES


def read(host: Host) -> Log:
    return read_log(host, RULES, devices=_addresses)


def _addresses(host: Host) -> tuple[str, ...] | None:
    return tuple(path.name.lower() for path in host.glob("/sys/bus/pci/devices/*")) or None


def judge(now: Log, before: Log | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now, before, RULES, policy)


CHECK = Check(
    name="accelerator_errors",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=(*RULES.faults, UNKNOWN_DEVICE),
    next_state=remembered,
    kernel_pattern=RULES,
)
