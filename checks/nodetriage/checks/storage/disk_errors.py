"""Disks, their controllers and RAID sets that fail, as the kernel logs it: I/O errors, timeouts, resets, lost members.

Source: the kernel log, by the tables rules/kernel/nvme.py, block.py and raid.py. One disk is one part: the PCI
address of an NVMe disk, as its number changes between boots; others have the kernel's name.
"""

from collections.abc import Iterator

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.rules.disk_lines import DiskLogPolicy, judge_disk_log, read_disk_log
from nodetriage.checks.rules.kernel import block, nvme, raid
from nodetriage.checks.rules.kernel_log import UNKNOWN_DEVICE, Log, remembered

RULES = nvme.RULES + block.RULES + raid.RULES


def read(host: Host) -> Log:
    return read_disk_log(host, RULES)


def judge(now: Log, before: Log | None, policy: DiskLogPolicy) -> Iterator[Finding]:
    yield from judge_disk_log(now, before, RULES, policy)


CHECK = Check(
    name="disk_errors",
    read=read,
    judge=judge,
    policy=DiskLogPolicy(),
    faults=(*RULES.faults, UNKNOWN_DEVICE),
    next_state=remembered,
    kernel_pattern=RULES,
)
