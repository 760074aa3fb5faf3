"""What a fault code or an Xid means, and what the controller does about it."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodetriage.agent.cli.report import ACTIONS
from nodetriage.agent.cli.style import PLAIN, Style
from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import Fault, faults
from nodetriage.checks.readers import nvidia_log


@dataclass(frozen=True, slots=True)
class Explanation:
    """`subject` is the question; `fault` is the code that the agent reports."""

    subject: str
    title: str
    fault: str
    severity: Severity
    cause: str  # user, system, hardware
    means: str
    advice: str
    action: str
    ends: str
    source: str = ""


def explain(word: str) -> Explanation:
    """Raises KeyError for an unknown fault or SXid; its text has the nearest names."""
    if number := nvidia_log.code_of(word):
        kind, code = number
        return _sxid(code) if kind == "sxid" else _xid(code)
    fault = faults().get(word.strip().lower())
    if fault is None:
        near = difflib.get_close_matches(word, faults(), n=3, cutoff=0.5)
        raise KeyError(f"{word}: no such fault{': perhaps ' + ', '.join(near) if near else ''}")
    return Explanation(
        subject=fault.code,
        title=fault.title,
        fault=fault.code,
        severity=fault.severity,
        cause=", ".join(fault.domains),
        means=fault.means,
        advice=fault.advice,
        action=ACTIONS[fault.severity],
        ends=_ends(fault),
    )


def _xid(code: int) -> Explanation:
    known = nvidia_log.explain(code)
    fault = faults().get(known.fault)
    return Explanation(
        subject=f"Xid {code} ({known.mnemonic})",
        title=known.meaning,
        fault=known.fault,
        severity=known.severity,
        cause={"application": "user", "either": "user, hardware"}.get(known.class_, known.class_),
        means=fault.means if fault else known.meaning,
        advice=known.advice,
        action=ACTIONS[known.severity],
        ends=_ends(fault) if fault else "",
        source=known.source,
    )


def _sxid(code: int) -> Explanation:
    known = nvidia_log.explain_switch(code)
    if known is None:
        raise KeyError(f"SXid {code}: not in the catalogue of this version")
    fault = faults()["nvswitch_fatal" if known.severity is Severity.CRITICAL else "nvswitch_error"]
    return Explanation(
        subject=f"SXid {code} ({known.name})",
        title=known.meaning,
        fault=fault.code,
        severity=known.severity,
        cause=", ".join(fault.domains),
        means=fault.means,
        advice=known.advice,
        action=ACTIONS[known.severity],
        ends=_ends(fault),
    )


def _ends(fault: Fault) -> str:
    after_s = fault.forgotten_after_s
    if after_s is not None:
        return f"{after_s:g} s after it was last seen"
    if fault.latching == "boot":
        return "with the next boot, an event that clears it, or an operator's `nodetriagectl clear`"
    return "when the check no longer sees it"


def all_faults() -> list[Explanation]:
    """Every fault code, the gravest first."""
    return [explain(fault.code) for fault in sorted(faults().values(), key=lambda f: (-f.severity, f.code))]


def as_list(found: Iterable[Explanation]) -> Iterator[str]:
    """A fault a line."""
    return (f"{e.severity.name.lower():<9} {e.fault:<28} {e.title}" for e in found)


def as_text(found: Explanation, style: Style = PLAIN) -> Iterator[str]:
    yield from style.fold(f"{found.subject}: {found.title}")
    yield ""
    rows = {
        "fault": found.fault if found.fault != found.subject else "",
        "severity": found.severity.name.lower(),
        "cause": found.cause,
        "means": found.means,
        "advice": found.advice,
        "action": f"{found.action} (unless the controller's policy says otherwise)",
        "ends": found.ends,
        "source": found.source,
    }
    for name, text in rows.items():
        if text:
            yield from style.fold(text, f"{name:<10}", " " * 10)
