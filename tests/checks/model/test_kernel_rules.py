"""The index of a table of rules skips only rules that cannot fit."""

import pytest

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules, beginnings


def rule(name: str, text: str, prefix: str = "") -> KernelRule:
    return KernelRule(name, text, "kernel_oops", Severity.MAJOR, (), r"\g<device>" if prefix else "kernel", prefix)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"Disabling IRQ #\d+$", ("Disabling IRQ #",)),
        (r"EXT4-fs \(\w+\)", ("EXT4-fs (",)),
        (r"lines? of it", ("line",)),
        (r"NVRM:\s+x", ("NVRM:",)),
        (r"ab+c", ("ab",)),
        (r"ab{2}c", ("a",)),
        (r"(?:NMI |)watchdog: \d", ("NMI watchdog: ", "watchdog: ")),
        (r"(?:NMI )?watchdog: \d", ("NMI watchdog: ", "watchdog: ")),
        (r"(?:x\d|y) z", ("",)),
        (r"(?:x|y)+ z", ("",)),
        (r"[A-Z]x", ("",)),
        (r"", ("",)),
    ],
)
def test_the_beginning_of_an_expression_is_what_all_its_matches_begin_with(expression, expected) -> None:
    assert beginnings(expression) == expected


def test_the_first_rule_that_fits_has_the_line_whatever_the_length_of_its_beginning() -> None:
    wide = rule("wide", r"(?:x\d|Kernel) panic - not syncing: ")
    narrow = rule("narrow", r"Kernel panic - not syncing: hung_task")
    line = "Kernel panic - not syncing: hung_task: blocked tasks"

    assert KernelRules((wide, narrow)).match(line).rule.name == "wide"  # type: ignore[union-attr]
    assert KernelRules((narrow, wide)).match(line).rule.name == "narrow"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:16:01.0: AER: device recovery failed",
        "mlx5_core 0000:16:01.0 ens1f0np0: AER: device recovery failed",
        "bnxt_en 0000:16:01.0 (unnamed net_device) (uninitialized): AER: device recovery failed",
    ],
)
def test_a_device_s_line_is_found_behind_any_driver_s_prefix(line: str) -> None:
    fit = KernelRules([rule("failed", "AER: device recovery failed", "pci")]).match(line)

    assert fit
    assert fit.component == "0000:16:01.0"


def test_the_prefix_of_one_bus_is_not_that_of_another() -> None:
    rules = KernelRules([rule("failed", "AER: device recovery failed", "pci")])

    assert rules.match("nvme nvme0: AER: device recovery failed") is None
    assert rules.match("AER: device recovery failed") is None
