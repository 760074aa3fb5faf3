"""Machine checks, Arm's aborts, and the firmware's reports on processors and on itself, as the kernel logs them.

Source: the kernel log, by the tables rules/kernel/cpu.py and apei.py. The status word says what was corrected; lines on
memory and PCIe devices are for mem_errors and pcie_errors, whoever printed them.
"""

from collections.abc import Iterator, Sequence

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.rules.kernel import apei, cpu
from nodetriage.checks.rules.kernel_log import (
    Event,
    KernelLogPolicy,
    Line,
    Log,
    each_line,
    judged,
    read_log,
    remembered,
)
from nodetriage.checks.rules.reports import cper, mce

RULES = cpu.RULES + apei.RULES
_RECORDS = ("mce.status", "mce.amd.sentence", "mce.amd.status", "mce.edac")
_POINTS_TO_RECORDS = "mce.logged"  # says only that there are records: those that are here say it themselves


def join(lines: Sequence[Line], rules: KernelRules) -> Iterator[Event]:
    has_records = any(line.rule in _RECORDS for line in lines)
    yield from cper.events(lines, ("cpu", "firmware"), rules)
    yield from mce.events(lines, "cpu")
    yield from (e for e in each_line(lines, rules) if not (has_records and e.rule == _POINTS_TO_RECORDS))


def read(host: Host) -> Log:
    return read_log(host, RULES, join)


def judge(now: Log, before: Log | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now, before, RULES, policy)


CHECK = Check(
    name="cpu_mce",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=("cpu_uncorrected", "cpu_corrected", "cpu_throttled", "firmware_error", "previous_boot_error"),
    next_state=remembered,
    kernel_pattern=RULES,
)
