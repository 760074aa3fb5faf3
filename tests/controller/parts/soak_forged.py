"""What the checks find in a kernel log full of drivers' lines that a user made the kernel quote."""

import functools
import tempfile
from pathlib import Path

from carriers import CARRIERS, forged

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Finding, Severity
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.readers import nvidia_log
from nodetriage.checks.registry import ALL

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
TABLES = [check.kernel_pattern for check in ALL if isinstance(check.kernel_pattern, KernelRules)]
GRAVE = {rule.name: rule for table in TABLES for rule in table.rules if rule.severity >= Severity.CRITICAL}
# The lines that would drain a node at once if they were believed.
WANTED = (
    *(line for line in nvidia_log.EXAMPLES if "Xid" in line or "fallen off the bus" in line),
    *(example for rule in GRAVE.values() for example in rule.examples[:1]),
)


def records() -> list[str]:
    """Every carrier of tests/checks with every wanted line in the field that is the user's."""
    return [record for carrier in CARRIERS for line in WANTED for record in forged(carrier, line)]


@functools.cache
def forged_findings() -> tuple[tuple[str, Finding], ...]:
    """(check, finding) on a node that has none of the devices that the lines name."""
    found: list[tuple[str, Finding]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "forged"
        (tree / "dev").mkdir(parents=True)
        # As the kernel writes them: a newline within a record is escaped.
        lines = (f"4,{k},{k * 1000},-;" + text.replace("\n", "\\x0a") for k, text in enumerate(records(), 1))
        (tree / "dev/kmsg").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (Path(folder) / "cpu-only").symlink_to(HOSTS / "cpu-only")
        (tree / "like.toml").write_text('tree = "cpu-only"\n')
        (tree / "clock.toml").write_text("boottime_s = 10.0\n")  # what is older than an hour would be history
        host = Host(tree)
        for check in ALL:
            if check.kernel_pattern is not None:
                ran = run(check, host.for_check(check), check.policy, None)
                found += [(check.name, finding) for finding in ran.findings]
    return tuple(found)
