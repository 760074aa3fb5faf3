"""What a line of the kernel's log is worth: its rule, its age at the first look, whether its device is here."""

from collections.abc import Iterator

import pytest

from nodetriage.checks.model import Confidence, Finding, KernelRecord, Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules
from nodetriage.checks.rules.kernel_log import (
    KernelLogPolicy,
    Log,
    each_line,
    folded,
    judged,
    lines_of,
    remembered,
)

RULES = KernelRules((
    KernelRule(
        "hang.task", r"INFO: task (?P<task>.{1,15}):\d+ blocked", "kernel_hung_task", Severity.WARNING, (), "kernel"
    ),
    KernelRule("irq.nobody", r"irq \d{1,6}: nobody cared", "kernel_irq_disabled", Severity.CRITICAL, (), "irq",
               state="lasting"),
    KernelRule("aer.failed", "AER: device recovery failed", "pcie_fatal", Severity.CRITICAL, (), r"\g<device>", "pci",
               "lasting"),
    KernelRule("aer.error", "AER: Corrected error", "pcie_fatal", Severity.WARNING, (), r"\g<device>", "pci"),
))  # fmt: skip
HUNG = "INFO: task python3:4711 blocked for more than 122 seconds."
LOST = 'irq 16: nobody cared (try booting with the "irqpoll" option)'
FAILED = "nvidia 0000:17:00.0: AER: device recovery failed"
CORRECTED = "nvidia 0000:17:00.0: AER: Corrected error"
DAY_S = 86400.0


def look(*lines: str, at_s: float = 100.0, now_s: float = 130.0, devices: tuple[str, ...] | None = None) -> Log:
    records = [KernelRecord(i, round((at_s + i) * 1e6), 3, line) for i, line in enumerate(lines)]
    return Log(tuple(folded(each_line(lines_of(records, RULES), RULES))), devices, now_s)


def verdict(now: Log, before: Log | None = None, **settings: object) -> list[Finding]:
    return list(judged(now, before, RULES, KernelLogPolicy(**settings)))  # type: ignore[arg-type]


def severities(found: Iterator[Finding] | list[Finding]) -> list[Severity]:
    return [finding.severity for finding in found]


def test_a_burst_is_one_finding_with_its_first_text_and_its_first_and_last_moment() -> None:
    (found,) = verdict(look(*[HUNG.replace("4711", str(4711 + n)) for n in range(40)]))

    assert (found.component, found.fault) == ("kernel", "kernel_hung_task")
    assert found.evidence == {
        "task": "python3", "text": HUNG, "rule": "hang.task", "lines": 40, "at_boot_s": 100.0, "last_at_boot_s": 139.0,
    }  # fmt: skip


def test_the_gravest_of_a_part_s_lines_decides() -> None:
    (found,) = verdict(look(CORRECTED, FAILED))

    assert (found.severity, found.evidence["text"], found.evidence["lines"]) == (Severity.CRITICAL, FAILED, 2)


@pytest.mark.parametrize(("line", "live", "old"), [(HUNG, 2, 1), (LOST, 4, 3), (FAILED, 4, 3), (CORRECTED, 2, 1)])
def test_a_first_look_takes_an_old_line_for_history(line: str, live: int, old: int) -> None:
    earlier = Log()

    assert severities(verdict(look(line, now_s=10 * DAY_S))) == [old]
    assert severities(verdict(look(line, now_s=10 * DAY_S), earlier)) == [live]
    assert severities(verdict(look(line, now_s=200.0))) == [live]
    assert severities(verdict(look(line, now_s=10 * DAY_S), history_after_s=20 * DAY_S)) == [live]


def test_a_line_without_a_stamp_is_no_history() -> None:
    records = [KernelRecord(1, -1, 3, LOST)]
    now = Log(tuple(each_line(lines_of(records, RULES), RULES)), None, 10 * DAY_S)

    assert severities(verdict(now)) == [Severity.CRITICAL]


def test_a_line_about_a_device_that_is_not_here_is_a_warning_that_says_so() -> None:
    (here,) = verdict(look(FAILED, devices=("0000:17:00.0",)))
    (elsewhere,) = verdict(look(FAILED, devices=("0000:18:00.0",)))

    assert (here.severity, here.confidence) == (Severity.CRITICAL, Confidence.DEVICE)
    assert (elsewhere.component, elsewhere.fault) == ("0000:17:00.0", "kernel_line_unknown_device")
    assert (elsewhere.severity, elsewhere.confidence) == (Severity.WARNING, Confidence.LINE)


def test_a_device_that_was_here_in_this_boot_and_is_gone_is_known() -> None:
    memory = remembered(remembered(None, look(devices=("0000:17:00.0",))), look(devices=("0000:18:00.0",)))

    (found,) = verdict(look(FAILED, devices=("0000:18:00.0",)), memory)

    assert (found.fault, found.severity) == ("pcie_fatal", Severity.CRITICAL)


def test_where_nobody_knows_the_devices_a_line_counts() -> None:
    assert severities(verdict(look(FAILED, devices=None))) == [Severity.CRITICAL]


def test_a_site_sets_the_severity_of_a_fault() -> None:
    settings = {"severity": {"kernel_hung_task": Severity.MAJOR}}

    assert severities(verdict(look(HUNG), None, **settings)) == [Severity.MAJOR]
    assert severities(verdict(look(LOST), None, **settings)) == [Severity.CRITICAL]
