"""Memory that fails, from its lines: EDAC, pages taken away, machine checks and the firmware's sections, as one story.

Who prints what of one error depends on the machine: a line that names no DIMM belongs to the DIMM that another line of
the same look names, if it is the only one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.rules.kernel_log import Event, Line, each_line
from nodetriage.checks.rules.reports import cper, mce

STORM = 20  # corrected errors of one DIMM in one look: a warning. mem_edac judges the rate where there are counters
_NO_DIMM = ("memory", "unknown memory", "any memory")


def join(lines: Sequence[Line], rules: KernelRules) -> Iterator[Event]:
    """What the lines say of each DIMM, or of "memory" where none says which."""
    injected = {line.groups["pfn"] for line in lines if line.rule == "page.inject"}
    found = [
        *cper.events(lines, ("memory",), rules),
        *mce.events(lines, "memory"),
        *(e for e in each_line(lines, rules) if e.rule != "page.inject"),
    ]
    yield from _assigned([_milder(event, injected) for event in found])


def _milder(event: Event, injected: set[str]) -> Event:
    """A page that somebody poisoned for a test is no fault."""
    if event.facts.get("pfn") in injected:
        return replace(event, fault="mem_page_retired", severity=Severity.INFO, state="info")
    return event


def _assigned(found: Sequence[Event]) -> Iterator[Event]:
    named = {e.component for e in found if e.component not in _NO_DIMM and not _is_corrected(e)}
    corrected = Counter(e.component for e in _several(found) if _is_corrected(e))
    for event in found:
        if event.component in _NO_DIMM:
            event = replace(event, component=next(iter(named)) if len(named) == 1 else "memory")
        if _is_corrected(event) and event.severity is None and corrected[event.component] >= STORM:
            event = replace(event, severity=Severity.WARNING)
        yield event


def _is_corrected(event: Event) -> bool:
    return event.rule == "edac.ce" or event.fault == "mem_corrected"


def _several(found: Iterable[Event]) -> Iterator[Event]:
    """Each event as often as the errors that it counts, at most STORM times."""
    for event in found:
        errors = str(event.facts.get("errors", 1))
        yield from [event] * min(int(errors) if errors.isdecimal() else 1, STORM)
