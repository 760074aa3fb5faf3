"""What all checks with rules for kernel lines make of some lines, on a machine that says nothing of its devices."""

from collections.abc import Iterable
from pathlib import Path

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Finding, KernelRecord
from nodetriage.checks.model.kernel_rules import matcher
from nodetriage.checks.registry import ALL


def findings(folder: Path, lines: Iterable[str]) -> list[tuple[str, Finding]]:
    """(check, finding), the gravest first. `folder` is the root of the machine."""
    records = tuple(KernelRecord(number, -1, 3, line) for number, line in enumerate(lines, 1))
    found: list[tuple[str, Finding]] = []
    for check in ALL:
        lines_of_check = matcher(check.kernel_pattern) if check.kernel_pattern is not None else None
        if lines_of_check and any(lines_of_check.match(record.text) for record in records):
            result = run(check, Host(folder).for_check(check, records), check.policy, None)
            assert result.outcome not in ("broken", "hung"), (check.name, result.why)
            found += [(check.name, finding) for finding in result.findings]
    return sorted(found, key=lambda pair: -pair[1].severity)
