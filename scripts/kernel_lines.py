"""docs/kernel-lines.md, from the tables of rules and from what they leave out: `make docs`."""

import csv
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules
from nodetriage.checks.registry import ALL
from nodetriage.checks.rules import kernel

LEFT_OUT = Path(__file__).parents[1] / "tests/checks/data/kernel_lines_left_out.tsv"
HEAD = """\
# Kernel lines

<!-- Made by `make docs` from the tables in checks/nodetriage/checks/rules/kernel; edit those. -->

Every line of the kernel's log that a check judges, beside the NVIDIA driver's Xid and SXid
([faults](faults.md#xid-codes)). The severity is the table's; a check's `severity` setting replaces it by fault. Two
things lower it: the line names a device that is not here, and was not in this boot; or it is older than
`history_after_s` when the check first looks at this boot's log.

A line without a fault belongs to a report of many lines, which is put together before it is judged: the firmware's
reports (APEI) by their number, whatever lines come between; a machine check with its status word, unit and DIMM. Lines
of one kind on one part are one finding, with the first and last moment and their number.

The state is what the words say: `event`, `corrected`, `recovered`, `lasting` (until a reset or a reboot), `info`.
"""
END = """
## What is left out

These lines deserve a warning by themselves, and have none, because something else tells better:

| line | why |
|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for module in tables():
        first, _, _ = (module.__doc__ or "").partition("\n\n")
        parts.append(
            f"\n## {module.__name__.rpartition('.')[2]}\n\n{first}\n\nChecks: {', '.join(checks_of(module))}.\n"
        )
        parts.append("\n| rule | line | part | fault | severity | state | kernels | source |\n" + "|---" * 8 + "|\n")
        parts += [row(rule) for rule in module.RULES.rules]
    return "".join([*parts, END, *left_out()])


def tables() -> Iterator[ModuleType]:
    """The modules with a table, by name."""
    for found in pkgutil.iter_modules(kernel.__path__):
        module = importlib.import_module(f"{kernel.__name__}.{found.name}")
        if isinstance(getattr(module, "RULES", None), KernelRules):
            yield module


def checks_of(module: ModuleType) -> list[str]:
    """The checks that judge rules of this table."""
    names = {rule.name for rule in module.RULES.rules}
    readers = [check for check in ALL if isinstance(check.kernel_pattern, KernelRules)]
    return [f"`{c.name}`" for c in readers if any(rule.name in names for rule in c.kernel_pattern.rules)]


def row(rule: KernelRule) -> str:
    severity = rule.severity.name.lower() if rule.fault else ""
    part = rule.component.replace(r"\g<", "").replace(">", "")
    line = code(rule.examples[0].replace("\n", " "))
    cells = (f"`{rule.name}`", line, part, f"`{rule.fault}`" if rule.fault else "", severity, rule.state, rule.versions)
    return f"| {' | '.join(cells)} | {rule.source} |\n"


def code(text: str) -> str:
    return f"`{text[:140].replace('|', chr(92) + '|').replace('`', chr(39))}`"


def left_out() -> Iterator[str]:
    with LEFT_OUT.open(encoding="utf-8", newline="") as table:
        for cells in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield f"| `{cells['id']}` | {cells['reason']} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
