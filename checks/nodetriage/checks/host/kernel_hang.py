"""A kernel that hangs or broke: hung tasks, lockups, RCU stalls, oopses, corrupted structures, NMIs, panics.

Source: the kernel log, by the tables rules/kernel/hangs.py and oops.py (Documentation/RCU/stallwarn.rst and
admin-guide/bug-hunting.rst). A task can hang for a file server's sake; after a lockup or an oops nothing is sure.
"""

from collections.abc import Iterator

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.rules.kernel import hangs, oops
from nodetriage.checks.rules.kernel_log import KernelLogPolicy, Log, judged, read_log, remembered

RULES = hangs.RULES + oops.RULES


def read(host: Host) -> Log:
    return read_log(host, RULES)


def judge(now: Log, before: Log | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now, before, RULES, policy)


CHECK = Check(
    name="kernel_hang",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=RULES.faults,
    next_state=remembered,
    kernel_pattern=RULES,
)
