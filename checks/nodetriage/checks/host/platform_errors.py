"""Unstable clocks, heat that ends the machine, CPUs and BMCs that do not answer, memory that ran out.

Source: the kernel log, by the table rules/kernel/platform.py.
"""

from collections.abc import Iterator

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.rules.kernel.platform import RULES
from nodetriage.checks.rules.kernel_log import KernelLogPolicy, Log, judged, read_log, remembered


def read(host: Host) -> Log:
    return read_log(host, RULES)


def judge(now: Log, before: Log | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now, before, RULES, policy)


CHECK = Check(
    name="platform_errors",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=RULES.faults,
    next_state=remembered,
    kernel_pattern=RULES,
)
