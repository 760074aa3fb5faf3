"""Changes as events for the wire. The spool numbers them."""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.checks.model import Outcome, Scalar, Severity
from nodetriage.service.crashpoint import passing
from nodetriage.v1 import health_pb2 as pb

TEXT_LIMIT = 4096  # characters of one value of evidence: enough for a stack trace

ROUTINE_KINDS = (Kind.OUTCOME, Kind.AGENT_STARTED, Kind.AGENT_STOPPED)


@dataclass(frozen=True, slots=True)
class Moment:
    """When it happened. The wall clock may step; the boot clock orders the events of a boot."""

    unix_us: int
    boot_us: int


@dataclass(frozen=True, slots=True)
class Unnumbered:
    """An event before the spool has numbered it. A full spool drops `routine` events first."""

    boot_id: str
    body: bytes  # v1.Event without its seq
    routine: bool


def make(change: Change, boot_id: str, at: Moment) -> Unnumbered:
    """The change as bytes for the spool."""
    routine = change.kind in ROUTINE_KINDS or (change.kind is not Kind.LOST and change.severity is Severity.INFO)
    return Unnumbered(boot_id, message_of(change, boot_id, at).SerializeToString(), routine)


def message_of(change: Change, boot_id: str, at: Moment) -> pb.Event:
    """The change as a message without a number."""
    return pb.Event(
        boot_id=boot_id,
        at_unix_us=at.unix_us,
        at_boot_us=at.boot_us,
        kind=f"EVENT_KIND_{change.kind.name}",
        check=change.check,
        component=change.component,
        fault=change.fault,
        severity=f"SEVERITY_{change.severity.name}",
        outcome=wire_outcome(change.outcome),
        evidence={key: value(v) for key, v in change.evidence.items()},
        occurrences=change.occurrences,
        confidence=change.confidence if change.fault else 0,
    )


def numbered(body: bytes, seq: int) -> pb.Event:
    """The message to send."""
    passing("stream.before_send")
    message = pb.Event.FromString(body)
    message.seq = seq
    return message


def is_loss(body: bytes) -> bool:
    """Whether the event reports dropped events."""
    try:
        return pb.Event.FromString(body).kind == pb.EVENT_KIND_LOST
    except DecodeError:  # a later version wrote it
        return False


def wire_outcome(outcome: Outcome | None) -> str:
    """The name of the enum value on the wire."""
    return "OUTCOME_UNSPECIFIED" if outcome is None else f"OUTCOME_{outcome.name}"


def value(scalar: Scalar) -> pb.Value:
    """A value of evidence. A whole number beyond 64 bits becomes a real one."""
    if isinstance(scalar, bool):
        return pb.Value(flag=scalar)
    if isinstance(scalar, int):
        return pb.Value(whole=scalar) if -(2**63) <= scalar < 2**63 else pb.Value(real=float(scalar))
    if isinstance(scalar, float):
        return pb.Value(real=scalar)
    return pb.Value(text=scalar.encode("utf-8", "replace").decode()[:TEXT_LIMIT])
