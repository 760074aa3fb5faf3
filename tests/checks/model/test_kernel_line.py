"""An expression for kernel lines that a user could satisfy is refused where it is written."""

import pytest

from nodetriage.checks.model import Check
from nodetriage.checks.model.kernel_line import ForgeablePattern, kernel_pattern

XID = r"NVRM: Xid \(PCI:[0-9a-f:]{10,16}\): (\d+)"


@pytest.mark.parametrize(
    "expression",
    [
        r"NVRM: Xid",  # a process may have this name
        r".*NVRM: Xid \(PCI:0000:00:00\)",  # matches inside what the kernel quotes
        r"\S+ NVRM: Xid \(PCI:0000:00:00\)",
        r"XFS \([\w-]+\): .*Shutting down filesystem",  # the name gives the beginning, a path the rest
        r"kernel BUG at ",
        r"NVRM: Xid \(PCI:0000:00:00\)|Oops: ",  # one alternative is enough
        r"md: [\w ,]{1,80}disk failure",  # so does a class that takes blanks
        r"[^x]{1,40}: page allocation failure",
        r"Disabling IRQ #\d{1,6}",  # with more behind it a process may have this name
        r"[a-z]{1,9} IRQ #\d{1,6}$",
        r"",
    ],
)
def test_a_pattern_that_a_user_could_make_the_kernel_print_is_refused(expression: str) -> None:
    with pytest.raises(ForgeablePattern, match="driver's own text from the start"):
        kernel_pattern(expression)


def test_a_check_with_such_a_pattern_cannot_be_made() -> None:
    for field in ("kernel_pattern", "kernel_wakes"):
        with pytest.raises(ForgeablePattern):
            Check(name="x", read=lambda h: 0, judge=lambda n, b, p: (), policy=0, faults=(), **{field: "md0: failed"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "expression",
    [
        XID,
        r"Disabling IRQ #\d{1,6}$",
        r"INFO: task .{1,15}:\d+ blocked for more than \d+ seconds",
        r"(?:NMI )?watchdog: BUG: soft",
    ],
)
def test_a_pattern_with_the_driver_s_own_beginning_is_taken(expression: str) -> None:
    assert kernel_pattern(expression).expression == expression


def test_a_line_is_looked_at_from_its_first_character_and_only_to_its_first_newline() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

    assert kernel_pattern(XID).match(line)
    assert not kernel_pattern(XID).match(f" {line}")
    assert not kernel_pattern(XID).match(f"overlayfs: failed to resolve '{line}'")
    assert not kernel_pattern(XID).match(f"a\n{line}")


def test_the_prefix_of_a_firewall_rule_is_no_line_of_a_driver() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

    assert not kernel_pattern(XID).match(f"{line}IN= OUT=lo SRC=127.0.0.1 DST=127.0.0.1 LEN=84 TOS=0x00")
