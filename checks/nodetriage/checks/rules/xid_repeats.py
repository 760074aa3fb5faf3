"""Errors that come back: what one line does not show, and a day on one device does."""

from collections.abc import Iterator, Sequence

from nodetriage.checks.model import Finding, Scalar, Severity
from nodetriage.checks.rules.xid_log import Seen

# Codes that an application causes, unless this one GPU alone shows them again: then the hardware is suspect.
_ONE_GPU_ALONE = (31, 32)
_CONTEXT_SWITCH = 109
_EXCEPTION = 13


def bursts(seen: Sequence[Seen], gap_s: float) -> list[list[Seen]]:
    """The lines, oldest first, cut at each silence of `gap_s`: one error prints many lines."""
    found: list[list[Seen]] = []
    last_s = 0.0
    for one in sorted(seen, key=lambda s: s.entry.at_s):
        if found and one.entry.at_s - last_s < gap_s:
            found[-1].append(one)
        else:
            found.append([one])
        last_s = max(last_s, one.entry.ended_s) if found[-1][0] is not one else one.entry.ended_s
    return found


def judge(
    earlier: Sequence[Seen], new: Sequence[Seen], gap_s: float, window_s: float, repeats: int, warning_repeats: int
) -> Iterator[Finding]:
    """What the new lines repeat often enough within the window: one finding a device, and one for its 109."""
    newest_s = max((s.entry.ended_s for s in new), default=0.0)
    recent = [s for s in (*earlier, *new) if newest_s - s.entry.ended_s <= window_s and s.line.kind == "xid"]
    places = dict.fromkeys(s.place for s in new if s.line.kind == "xid" and not s.worth.over)
    worst: dict[tuple[str, str], Finding] = {}
    for place in places:
        same = [s for s in recent if s.place == place]
        if not same:  # new, but older than the window: a log that was read all at once
            continue
        count = len(bursts(same, gap_s))
        severity = _severity(same[-1], recent, count, repeats, warning_repeats)
        if severity is None:
            continue
        evidence: dict[str, Scalar] = {"xid": same[-1].line.code or 0, "bursts": count, "window_s": window_s}
        if place[3] is not None and place[4] is not None:
            evidence |= {"gpc": place[3], "tpc": place[4]}
        # 109 is a fault of its own already; coming back only makes it graver.
        fault = same[-1].worth.fault if same[-1].line.code == _CONTEXT_SWITCH else "gpu_xid_repeated"
        found = Finding(same[-1].line.component, fault, severity, evidence)
        key = (found.component, fault)
        if key not in worst or severity > worst[key].severity:
            worst[key] = found
    yield from worst.values()


def _severity(last: Seen, recent: Sequence[Seen], count: int, repeats: int, warning_repeats: int) -> Severity | None:
    """What the repetition is worth; None where it is none."""
    code = last.line.code
    if code == _EXCEPTION:
        return Severity.WARNING if "gpc" in last.worth.evidence and count >= repeats else None
    if code in _ONE_GPU_ALONE:
        alone = {s.line.component for s in recent if s.line.code == code} == {last.line.component}
        return Severity.WARNING if alone and count >= repeats else None
    if code == _CONTEXT_SWITCH:
        return Severity.CRITICAL if count >= repeats else None
    if last.worth.severity is Severity.WARNING:
        return Severity.MAJOR if count >= warning_repeats else None
    return None
