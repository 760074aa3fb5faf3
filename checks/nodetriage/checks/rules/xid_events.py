"""From the lines of one device and fault to events: what belongs together, who was on the GPU, how many lines."""

from collections.abc import Collection, Iterator

from nodetriage.checks.model import Finding, Scalar, Severity
from nodetriage.checks.rules.xid_log import Seen
from nodetriage.checks.rules.xid_repeats import bursts
from nodetriage.checks.rules.xid_rules import APPLICATION

HISTORY = "gpu_xid_notice"  # what a line of the past is: the state of the GPU says what is left of it
_MOST_EVENTS = 16  # of programs on one GPU in one run


def events(group: list[Seen], fresh: Collection[int], gap_s: float, uuid: str | None) -> Iterator[Finding]:
    """Findings of the new lines (`fresh`: their ids) of one component and fault.

    One for a fault of the GPU; for errors of programs one for each burst and process, as jobs are blamed by it.
    """
    past = [s for s in group if s.entry.is_history and id(s) in fresh and s.worth.severity > Severity.INFO]
    recent = [s for s in group if not s.entry.is_history or s.worth.severity is Severity.INFO]
    if past:
        yield _history(past, uuid)
    found = [burst for burst in bursts(recent, gap_s) if any(id(s) in fresh for s in burst)]
    if not found:
        return
    if group[0].worth.fault == APPLICATION:
        programs = [part for burst in found for part in _by_process(burst, fresh)][-_MOST_EVENTS:]
        others = list(dict.fromkeys(_who(part) for part in programs))
        for part in programs:
            yield _event(part, part, fresh, uuid, ", ".join(o for o in others if o and o != _who(part)))
        return
    worst = max(found, key=lambda burst: max(s.worth.severity for s in burst if id(s) in fresh))
    yield _event(worst, recent, fresh, uuid)


def _by_process(burst: list[Seen], fresh: Collection[int]) -> list[list[Seen]]:
    parts: dict[object, list[Seen]] = {}
    for seen in burst:
        parts.setdefault((seen.line.pid, seen.line.process), []).append(seen)
    return [part for part in parts.values() if any(id(s) in fresh for s in part)]


def _who(lines: list[Seen]) -> str:
    line = lines[0].line
    return f"{line.process or 'pid'} ({line.pid})" if isinstance(line.pid, int) else ""


def _event(burst: list[Seen], group: list[Seen], fresh: Collection[int], uuid: str | None, others: str = "") -> Finding:
    news = [s for s in burst if id(s) in fresh]
    worst = max(news, key=lambda s: s.worth.severity)  # of equals the first: later ones are its echo
    # A milder line does not soften a fault that is still held.
    gravest = max((worst, *group), key=lambda s: s.worth.severity)
    evidence = _evidence(gravest, news, max(1, sum(s.entry.lines for s in burst)), uuid)
    if others:
        evidence["others"] = others[:200]
    return Finding(gravest.line.component, gravest.worth.fault, gravest.worth.severity, evidence)


def _history(past: list[Seen], uuid: str | None) -> Finding:
    worst = max(past, key=lambda s: s.worth.severity)
    evidence = _evidence(worst, [], max(1, sum(s.entry.lines for s in past)), uuid)
    evidence |= {"history": worst.worth.fault, "severity_then": worst.worth.severity.name.lower()}
    return Finding(worst.line.component, HISTORY, Severity.INFO, evidence)


def _evidence(worst: Seen, news: list[Seen], count: int, uuid: str | None) -> dict[str, Scalar]:
    line = worst.line
    known = {
        "sxid" if line.kind == "sxid" else "xid": line.code,
        "text": line.rest[:200], "pid": line.pid, "process": line.process, "mig": line.mig, "uuid": uuid,
        "at_boot_s": round(worst.entry.at_s, 3),
    }  # fmt: skip
    qualifiers = {k: v for s in reversed(news) for k, v in s.worth.evidence.items()}
    found: dict[str, Scalar] = {k: v for k, v in known.items() if v is not None}
    return {**found, **qualifiers, **worst.worth.evidence, "count": count}
