"""What one run of one check gives: the value that workers hand to the agent and that the verdict takes in."""

from dataclasses import dataclass
from typing import Any

from nodetriage.checks.model import Finding, Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """`memory` is for the next run's judge; `why` explains every outcome but ok and findings.

    `cleared` are the (component, fault) pairs that this run says are over; the verdict applies them before `findings`.
    `excluded` are components that the run did not look at. Nothing that is open against them is cleared, and a run that
    found nothing on the other components is `skipped`, not `ok`. `ran` is False where no worker could run the check.
    """

    check: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    cleared: tuple[tuple[str, str], ...] = ()
    why: str = ""
    memory: Any = None
    took_ms: float = 0.0
    excluded: tuple[str, ...] = ()
    ran: bool = True
