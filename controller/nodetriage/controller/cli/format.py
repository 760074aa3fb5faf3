"""Writes values of the store for people and for JSON: times, ages, names of enums, evidence."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from nodetriage.controller.store.fleet import CheckView
from nodetriage.controller.store.history import StoredEvent
from nodetriage.controller.store.node_views import NodeView, OpenFinding
from nodetriage.controller.store.poison import Poison
from nodetriage.v1 import health_pb2

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 UTC, without saying so: that halves the time of `iso`
SEVERITIES = ("info", "warning", "major", "critical")


def severity(number: int) -> str:
    """The severity's name; the number itself for one that only a newer agent knows; "" for none."""
    return SEVERITIES[number - 1] if 1 <= number <= len(SEVERITIES) else str(number or "")


def kind(number: int) -> str:
    """As "raised" or "agent_started"."""
    names = health_pb2.EventKind.Name
    known = number in health_pb2.EventKind.values()
    return names(health_pb2.EventKind.ValueType(number)).removeprefix("EVENT_KIND_").lower() if known else str(number)


def outcome(number: int) -> str:
    """As "ok" or "hung"; "" for none."""
    if number not in health_pb2.Outcome.values():
        return str(number)
    name = health_pb2.Outcome.Name(health_pb2.Outcome.ValueType(number)).removeprefix("OUTCOME_").lower()
    return "" if name == "unspecified" else name


def iso(at_us: int | None) -> str | None:
    """UTC with microseconds and a Z; None stays None. A time beyond year 9999 becomes its number."""
    if at_us is None:
        return None
    try:
        at = _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return str(at_us)
    return f"{at.isoformat(timespec='microseconds')}Z"


def clock(at_us: int | None) -> str:
    """UTC to the second, for a column."""
    return (iso(at_us) or "").replace("T", " ")[:19]


def age(seconds: float) -> str:
    """As "12s", "5m", "3h" or "4d"."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def evidence(event: health_pb2.Event) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("kind") or "text") for name, value in sorted(event.evidence.items())}


def evidence_line(event: health_pb2.Event) -> str:
    return words(evidence(event))


def words(named: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in named.items())


def event_json(stored: StoredEvent) -> dict[str, Any]:
    event = stored.event
    return {
        "cursor": stored.cursor,
        "node": stored.node,
        "at": iso(event.at_unix_us),
        "received_at": iso(stored.received_us),
        "boot_id": event.boot_id,
        "seq": event.seq,
        "kind": kind(event.kind),
        "check": event.check,
        "component": event.component,
        "fault": event.fault,
        "severity": severity(event.severity),
        "outcome": outcome(event.outcome),
        "evidence": evidence(event),
        "occurrences": event.occurrences,
    }


def node_json(view: NodeView, now_us: int) -> dict[str, Any]:
    row, known = view.row, view.known
    return {
        "node": view.node,
        "state": view.state,
        "policy_state": view.policy_state,
        "since": iso(view.since_us) if view.policy_state else None,
        "presence": view.presence,
        "presence_since": known.since.isoformat().replace("+00:00", "Z") if known else None,
        "presence_why": known.why if known else "",
        "slurm": known.slurm if known else "",
        "slurm_reason": known.reason if known else "",
        "slurm_reason_by": known.reason_by if known else "",
        "drain": view.drain,
        "theirs": view.theirs,
        "queued_reason": view.queued_reason,
        "incident": view.incident,
        "maintenance": view.maintenance,
        "findings": [finding_json(f) for f in view.findings],
        "last_seen": iso(row.last_seen_us) if row else None,
        "last_seen_age_s": (now_us - row.last_seen_us) / 1_000_000 if row else None,
        "first_seen": iso(row.first_seen_us) if row else None,
        "boot_id": row.boot_id if row else "",
        "profile": row.profile if row else "",
        "agent_version": row.agent_version if row else "",
    }


def check_json(check: CheckView, now_us: int) -> dict[str, Any]:
    age_s = None if check.ran_us is None else (now_us - check.ran_us) / 1_000_000
    return {
        "check": check.check,
        "outcome": outcome(check.outcome),
        "age_s": age_s,
        "since": iso(check.since_us),
    }


def finding_json(found: OpenFinding) -> dict[str, Any]:
    return {
        "check": found.check,
        "component": found.component,
        "fault": found.fault,
        "severity": severity(found.severity),
        "at": iso(found.raised_us),
        "occurrences": found.times,
        "evidence": dict(found.evidence),
    }


def poison_json(one: Poison) -> dict[str, Any]:
    """`head` is in hexadecimal: it is no valid message where it was cut."""
    return {
        "received_at": iso(one.received_us),
        "node": one.node,
        "boot_id": one.boot_id,
        "seq": one.seq,
        "size": one.size,
        "why": one.why,
        "head": one.head.hex(),
    }


def record_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row of actions or transitions: *_us becomes *_at in ISO, severities words, flags true or false."""
    out: dict[str, Any] = {}
    for name, value in record.items():
        if name.endswith("_us"):
            out["at" if name == "at_us" else name.removesuffix("_us") + "_at"] = iso(value) if value else None
        elif name == "severity":
            out[name] = severity(value)
        else:
            out[name] = bool(value) if name == "hold" else value
    return out
