"""The results of checks for people and for programs (JSON), and the exit code that sums them up."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nodetriage.agent.cli.style import PLAIN, Style
from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.checks.model.faults import faults
from nodetriage.service.printable import printable

OK, WARNING, SERIOUS, UNKNOWN = 0, 1, 2, 3  # the order of Nagios plugins

_NAME_WIDTH = 18
_OUTCOME_WIDTH = 10
_INDENT = " " * 11

_COLOURS = {  # ECMA-48: 1 bold, 2 faint, 31 red, 32 green, 33 yellow
    Severity.CRITICAL: "1;31",
    Severity.MAJOR: "31",
    Severity.WARNING: "33",
    Severity.INFO: "2",
    Outcome.OK: "32",
    Outcome.FINDINGS: "1",
    Outcome.SKIPPED: "2",
    Outcome.BROKEN: "1;33",
    Outcome.HUNG: "1;33",
}
ACTIONS = {
    Severity.CRITICAL: "drain the node now and requeue its jobs",
    Severity.MAJOR: "let the job finish, then drain the node",
    Severity.WARNING: "record it; no action",
    Severity.INFO: "record it; no action",
}


def worst(results: Iterable[Result]) -> Severity | None:
    """The gravest severity of all findings; None where there is none."""
    return max((finding.severity for result in results for finding in result.findings), default=None)


def exit_code(results: Sequence[Result]) -> int:
    """0 ok, 1 warning, 2 major or critical, 3 hung, broken or nothing to look at. A fault outweighs not knowing."""
    severity = worst(results)
    if code_of(severity) == SERIOUS:
        return SERIOUS
    outcomes = {result.outcome for result in results}
    if outcomes & {Outcome.HUNG, Outcome.BROKEN} or outcomes <= {Outcome.SKIPPED}:
        return UNKNOWN
    return code_of(severity)


def code_of(severity: Severity | None) -> int:
    """The exit code for a finding of this severity."""
    if severity is None or severity is Severity.INFO:
        return OK
    return WARNING if severity is Severity.WARNING else SERIOUS


def as_json(results: Sequence[Result], times: bool = False) -> dict[str, Any]:
    """Nothing in it depends on the time or the speed of the run, except with `times`."""
    severity = worst(results)
    return {
        "exit_code": exit_code(results),
        "severity": severity.name.lower() if severity else None,
        "checks": [
            {
                "check": result.check,
                "outcome": result.outcome.value,
                "why": result.why,
                "findings": [_finding_json(finding) for finding in _ordered(result.findings)],
                **({"took_ms": result.took_ms} if times else {}),
            }
            for result in results
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "component": finding.component,
        "fault": finding.fault,
        "severity": finding.severity.name.lower(),
        "evidence": dict(finding.evidence),
    }


def _ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first."""
    return sorted(findings, key=lambda f: (-f.severity, f.component, f.fault))


def as_text(results: Sequence[Result], style: Style = PLAIN) -> Iterator[str]:
    """Each check with its findings under it, then the sum."""
    for result in results:
        yield from _check(result, style)
    yield ""
    yield from style.fold(_sum(results))


def in_brief(results: Sequence[Result], style: Style = PLAIN) -> Iterator[str]:
    """First the checks that need attention; then the skipped ones, by their reason, and those that are ok."""
    quiet: dict[tuple[Outcome, str], list[str]] = {}
    for result in results:
        if result.outcome in (Outcome.SKIPPED, Outcome.OK):
            quiet.setdefault((result.outcome, result.why), []).append(result.check)
        else:
            yield from _check(result, style)
    for (outcome, why), names in sorted(quiet.items(), key=lambda group: group[0][0] is Outcome.OK):
        yield from _line("", outcome, why, style)
        yield from style.fold(", ".join(names), "  ")
    yield ""
    yield from style.fold(_sum(results))


def _check(result: Result, style: Style) -> Iterator[str]:
    yield from _line(f"{result.check:<{_NAME_WIDTH}}", result.outcome, result.why, style)
    for finding in _ordered(result.findings):
        yield from _finding(finding, style)


def _finding(finding: Finding, style: Style) -> Iterator[str]:
    """One line in a pipe, so that grep finds all of it; on a terminal title and evidence stand below."""
    severity = painted(f"{finding.severity.name.lower():<9}", finding.severity, style)
    head = f"  {severity}{printable(finding.component)}: {finding.fault}"
    known = faults().get(finding.fault)
    evidence = "  ".join(f"{key}={_value(value)}" for key, value in finding.evidence.items())
    if style.width is None:
        yield f"{head}{f': {known.title}' if known else ''}{f'  {evidence}' if evidence else ''}"
        return
    yield head
    if known:
        yield from style.fold(known.title, _INDENT)
    if evidence:
        yield from style.fold(evidence, _INDENT)


def _line(name: str, outcome: Outcome, why: str, style: Style) -> Iterator[str]:
    """Name, outcome and reason, in columns."""
    left = len(name) + _OUTCOME_WIDTH
    first, *more = list(style.fold(printable(why), " " * left)) or [""]
    yield f"{name}{painted(f'{outcome.value:<{_OUTCOME_WIDTH}}', outcome, style)}{first[left:]}".rstrip()
    yield from more


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return repr(value) if " " in value else printable(value)
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _sum(results: Sequence[Result]) -> str:
    counts = ((outcome, sum(result.outcome is outcome for result in results)) for outcome in Outcome)
    words = {Outcome.FINDINGS: "with findings"}
    counted = ", ".join(f"{count} {words.get(outcome, outcome.value)}" for outcome, count in counts if count)
    severity = worst(results)
    noun = "check" if len(results) == 1 else "checks"
    if severity:
        return f"{len(results)} {noun}: {counted}. Worst: {severity.name.lower()} ({ACTIONS[severity]})."
    if all(result.outcome is Outcome.SKIPPED for result in results):
        return f"{len(results)} {noun}: {counted}. Nothing could be looked at."
    return f"{len(results)} {noun}: {counted}."


def painted(text: str, kind: Severity | Outcome, style: Style) -> str:
    """In the colour of its kind, where the style has colours."""
    return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m" if style.colour else text
