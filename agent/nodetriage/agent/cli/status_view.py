"""The running agent's answer to `status` as results of checks, for people and for the exit code."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodetriage.agent.cli import report
from nodetriage.agent.cli.style import PLAIN, Style
from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.service.printable import printable

AGENT = "agent"  # under this name the agent reports on itself


def results(answer: Mapping[str, Any]) -> list[Result]:
    """Each check with its open findings. Raises KeyError, ValueError where `answer` has another form."""
    return [_result(name, said) for name, said in answer["checks"].items()]


def _result(name: str, said: Mapping[str, Any]) -> Result:
    """A check that has not run yet is `skipped`, never `ok`."""
    if said["outcome"] is None:
        return Result(name, Outcome.SKIPPED, why=said["why"])
    findings = tuple(
        Finding(one["component"], one["fault"], Severity[one["severity"].upper()], _evidence(one))
        for one in said["findings"]
    )
    why = f"{age(said['age_s'])} ago"
    return Result(name, Outcome(said["outcome"]), findings, why=f"{why}: {said['why']}" if said["why"] else why)


def _evidence(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {**finding["evidence"], "open_for": age(finding["open_s"]), "occurrences": finding["occurrences"]}


def exit_code(found: Sequence[Result]) -> int:
    """As for a run of checks. That the agent itself is well says nothing about the machine: alone it is not `ok`."""
    return report.exit_code([result for result in found if result.check != AGENT or result.findings])


def as_text(answer: Mapping[str, Any], found: Sequence[Result], style: Style = PLAIN) -> Iterator[str]:
    """The checks, then the state of the agent itself."""
    yield from report.as_text(found, style)
    spool, controller, kernel_log = answer["spool"], answer["controller"], answer["kernel_log"]
    facts = [
        f"Node {answer['node']}, agent {answer['version']}",
        f"controller: {controller['state']}",
        f"{spool['events']} events to send",
    ]
    if spool["trouble"]:
        facts.append(f"spool: {spool['trouble']}")
    if not kernel_log["followed"]:
        facts.append(f"kernel log not followed: {kernel_log['trouble'] or 'switched off'}")
    facts += [f"{a['class']} worker {a['pid']} hangs at: {a['doing']}" for a in answer["abandoned_workers"]]
    if programs := answer["abandoned_programs"]:
        facts.append(f"{programs} programs of checks hang in the kernel")
    yield from style.fold(printable("; ".join(facts)) + ".")


def age(seconds: float) -> str:
    """Two figures are enough: 0.4 s, 12 s, 5 min, 3 h, 2 d."""
    for unit, size, below in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < below:
            number = seconds / size
            return f"{number:.1f} {unit}" if number < 10 and unit != "min" else f"{number:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
