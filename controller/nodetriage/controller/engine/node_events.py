"""Rows of the table `events` as the policy takes them."""

from collections.abc import Mapping
from typing import Any

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.policy.state import EventKind, NodeEvent
from nodetriage.controller.store.mappers import EVENT_KINDS
from nodetriage.controller.store.state_store import from_us
from nodetriage.v1 import health_pb2

HOOKS = ("prolog", "epilog")  # as whose outcome an agent tells what its hooks did
# A key of the evidence -> what it names. A firmware or driver that the whole fleet runs says nothing by itself.
_SHARED_EVIDENCE = {
    "source": "mount source",
    "switch": "switch",
    "rack": "rack",
    "driver": "driver",
    "firmware": "firmware",
}


def node_event(
    row: Any, profile: str, version: str, present_boot: str = "", late: bool = False, overtakes: bool = False
) -> NodeEvent:
    """`late` where `present_boot` is not known: the boot was over when the policy took the event."""
    message = health_pb2.Event.FromString(row.message)
    refused_job = _refused_job(row, message)
    restated = row.boot_id == CONTROLLER_BOOT and message.of_boot != ""
    boot_id, seq = (message.of_boot, message.as_of_seq) if restated else (row.boot_id, row.seq)
    present = boot_id in (present_boot, CONTROLLER_BOOT) if present_boot else not late
    return NodeEvent(
        id=row.id,
        node=row.node,
        boot_id=boot_id,
        seq=seq,
        at=from_us(row.at_us),
        kind=EventKind.REFUSED if refused_job else EVENT_KINDS.get(row.kind, EventKind.OTHER),
        check=row.check_name,
        component=row.component,
        fault=row.fault,
        severity=severity_of(row.severity),
        profile=profile,
        present=present,
        version=version,
        places=_places(message.evidence) if row.fault else (),
        confidence=confidence_of(message.confidence),
        received_at=from_us(row.received_us),
        # A restated finding began long before it came: that says nothing about when the boot began.
        at_boot_s=None if restated else message.at_boot_us / 1e6 or None,
        job=refused_job,
        restated=restated,
        overtakes=overtakes,
    )


def _refused_job(row: Any, message: health_pb2.Event) -> str:
    """The job that a hook refused for this fault, as Slurm's commands name it; "" for any other event."""
    if not row.fault or row.kind != health_pb2.EVENT_KIND_OUTCOME or row.check_name not in HOOKS:
        return ""
    evidence = message.evidence
    if not evidence["refused"].flag:
        return ""
    array, task = evidence["array_job_id"].text, evidence["array_task_id"].text
    return f"{array}_{task}" if array and task else evidence["job_id"].text or "unknown"


def confidence_of(number: int) -> Confidence:
    """An agent that does not say reports what a check read; of a number that is unknown the least is believed."""
    if number == 0:
        return Confidence.STATE
    return Confidence(number) if number in Confidence.__members__.values() else Confidence.LINE


def _places(evidence: Mapping[str, health_pb2.Value]) -> tuple[str, ...]:
    """What the evidence names that others may share: a file server, a driver, a switch, a fabric's clique."""
    named = {key: _text(evidence[key]) for key in (*_SHARED_EVIDENCE, "cluster", "clique") if key in evidence}
    found = [f"{words} {named[key]}" for key, words in _SHARED_EVIDENCE.items() if named.get(key)]
    if cluster := named.get("cluster"):  # the number of a clique says nothing without it
        clique = named.get("clique")
        found += [f"cluster {cluster}", *([f"clique {cluster}/{clique}"] if clique else [])]
    return tuple(found)


def _text(value: health_pb2.Value) -> str:
    return value.text[:200] if value.text else str(value.whole or "")


def severity_of(number: int) -> Severity:
    """Of a number on the wire."""
    # A newer agent may know more; what we cannot rank is kept and leads to nothing.
    return Severity(number) if number in Severity.__members__.values() else Severity.INFO
