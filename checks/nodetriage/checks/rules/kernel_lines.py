"""Lines of the kernel's log that report a fault, by rules: what they say, and on which part."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Confidence, Finding, KernelRecord, Severity
from nodetriage.checks.model.kernel_line import KernelPattern, any_of, kernel_pattern

TEXT_LIMIT = 240  # characters of a line that are kept as evidence
# Fault and severity of lines that name a device which is not here, and was not in this boot.
UNKNOWN_DEVICE = ("kernel_line_unknown_device", Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Rule:
    """`component` is a name, or a template with the pattern's groups in it. The first rule that fits a line has it.

    `examples` are lines as the kernel prints them, one for each wording: tests forge every one of them.
    """

    kind: str
    pattern: KernelPattern
    component: str
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Lines of one kind on one part in one run; `text` is the first of them."""

    kind: str
    component: str
    text: str
    at_s: float  # of the first, since boot
    lines: int = 1


def rule(kind: str, expression: str, component: str, *examples: str) -> Rule:
    """Raises ForgeablePattern where a user could make the kernel print a line that fits."""
    return Rule(kind, kernel_pattern(expression), component, examples)


def pattern(rules: Iterable[Rule]) -> str:
    """One expression for Check.kernel_pattern."""
    return any_of(r.pattern.expression for r in rules)


def events(records: Iterable[KernelRecord], rules: Iterable[Rule]) -> tuple[Event, ...]:
    """One event a kind and part, in the order of their first lines. Lines that no rule fits are left out."""
    rules, found = tuple(rules), dict[tuple[str, str], Event]()
    for record in records:
        for r in rules:
            if fits := r.pattern.match(record.text):
                component = fits.expand(r.component)[:80]
                new = Event(r.kind, component, record.text[:TEXT_LIMIT], round(max(record.at_us, 0) / 1e6, 3))
                known = found.get((r.kind, component), replace(new, lines=0))
                found[r.kind, component] = replace(known, lines=known.lines + 1)
                break
    return tuple(found.values())


def findings(seen: Iterable[Event], worth: dict[str, tuple[str, Severity]]) -> Iterator[Finding]:
    """`worth` gives fault and severity by kind."""
    for event in seen:
        fault, severity = worth[event.kind]
        yield Finding(
            event.component,
            fault,
            severity,
            {"text": event.text, "lines": event.lines, "at_boot_s": event.at_s},
            Confidence.LINE if worth[event.kind] == UNKNOWN_DEVICE else Confidence.DEVICE,
        )


def nothing(before: tuple[Event, ...] | None, now: tuple[Event, ...]) -> tuple[Event, ...]:
    """The memory of a check whose faults the verdict holds: none."""
    return ()
