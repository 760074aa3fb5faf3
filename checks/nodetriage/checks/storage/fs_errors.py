"""File systems on the node's own disks that are damaged, or that the kernel made read-only or shut down.

Source: the kernel log, by the table rules/kernel/filesystems.py. The part is the disk, as in disk_errors; evidence
`device` is the partition or volume that the line names.
"""

from collections.abc import Iterator

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.rules.disk_lines import DiskLogPolicy, judge_disk_log, read_disk_log
from nodetriage.checks.rules.kernel import filesystems
from nodetriage.checks.rules.kernel_log import UNKNOWN_DEVICE, Log, remembered

RULES = filesystems.RULES


def read(host: Host) -> Log:
    return read_disk_log(host, RULES)


def judge(now: Log, before: Log | None, policy: DiskLogPolicy) -> Iterator[Finding]:
    yield from judge_disk_log(now, before, RULES, policy)


CHECK = Check(
    name="fs_errors",
    read=read,
    judge=judge,
    policy=DiskLogPolicy(),
    faults=(*RULES.faults, UNKNOWN_DEVICE),
    next_state=remembered,
    kernel_pattern=RULES,
)
