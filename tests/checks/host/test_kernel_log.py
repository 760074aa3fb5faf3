"""A check waits for the kernel's log only where it reads it."""

from pathlib import Path
from typing import Any

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, KernelRecord
from nodetriage.checks.registry import ALL

DGX = Path(__file__).resolve().parents[2] / "hosts/dgx-h100"


class Listened(Host):
    """Notes that its log was asked for."""

    asked = False

    def kernel_log(self) -> tuple[KernelRecord, ...]:
        self.asked = True
        return super().kernel_log()


@pytest.mark.parametrize("check", ALL, ids=lambda c: c.name)
def test_who_has_lines_to_judge_reads_them_and_nobody_else(check: Check[Any, Any]) -> None:
    host: Any = Listened(DGX).for_check(check, ())
    run(check, host, check.policy, None)

    assert host.asked == (check.kernel_pattern is not None)
