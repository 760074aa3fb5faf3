"""The open findings of the node for a heartbeat: a digest each time, and the whole set where a controller needs it."""

from nodetriage.agent.core.verdict import Change, Kind, OpenFinding, Verdict
from nodetriage.agent.delivery import event
from nodetriage.service import open_set
from nodetriage.v1 import health_pb2 as pb

MOST_FINDINGS = 256  # in one set, the gravest first; the controller keeps no more of a node
TEXT_LIMIT = 256  # characters of one value of evidence


def stated(verdict: Verdict, as_of_seq: int, whole: bool, at: event.Moment) -> pb.OpenSet:
    """`as_of_seq` is the number of the last event; `at` is now by both clocks."""
    found = [(check, finding) for check, known in verdict.checks.items() for finding in known.open]
    entries = (open_set.Entry(c, f.component, f.fault, int(f.severity), int(f.confidence)) for c, f in found)
    message = pb.OpenSet(digest=open_set.digest(entries), as_of_seq=as_of_seq, stated=whole)
    if whole:
        found.sort(key=lambda one: (-one[1].severity, one[0], one[1].key))
        message.left_out = max(0, len(found) - MOST_FINDINGS)
        message.findings.extend(_finding(check, f, at) for check, f in found[:MOST_FINDINGS])
    return message


def _finding(check: str, of: OpenFinding, at: event.Moment) -> pb.Event:
    """As its RAISED event was: at the time when it was raised."""
    raised_us = int(of.raised_s * 1e6)
    raised = event.Moment(at.unix_us - max(0, at.boot_us - raised_us), raised_us)
    change = Change(
        Kind.RAISED, check, None, of.component, of.fault, of.severity, of.evidence, of.occurrences, of.confidence
    )
    message = event.message_of(change, "", raised)
    for value in message.evidence.values():
        if value.HasField("text"):
            value.text = value.text[:TEXT_LIMIT]
    return message
