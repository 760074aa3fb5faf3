"""Which hellos, batches and questions the controller accepts. Pure; a refusal says what was expected."""

import re

import grpc

from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.event_bounds import MOST_NAME
from nodetriage.controller.rpc.peer_limits import AdmissionSettings as AdmissionSettings
from nodetriage.v1 import health_pb2

PROTOCOL = 1

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_BOOT_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_MAX_NAMES = 10_000  # in one question to the database
_LONGEST_UP_US = 20 * 365 * 86_400 * 1_000_000
_LAST_US = 32_503_680_000_000_000  # the year 3000: Python counts to 9999, and windows are added to it
_MAX_SEQ = 2**63 - 1  # what the database's widest integer holds


def admit_hello(hello: health_pb2.Hello, version: str) -> None:
    """Raises Refused where a field has no valid form, or the agent's version does not match our `version`."""
    if not _NODE.fullmatch(hello.node):
        raise _invalid(f"hello.node: expected a node's name, got {hello.node[:80]!r}")
    if not _BOOT_ID.fullmatch(hello.boot_id):
        raise _invalid(f"hello.boot_id: expected letters, digits and dashes, got {hello.boot_id[:80]!r}")
    if hello.boot_id == CONTROLLER_BOOT:
        raise _invalid(f"hello.boot_id: {CONTROLLER_BOOT!r} names the controller's own events")
    if hello.protocol != PROTOCOL:
        raise _too_far(f"agent {hello.agent_version} speaks protocol {hello.protocol}, controller {version} {PROTOCOL}")
    for field in ("agent_version", "profile"):
        if len(text := getattr(hello, field)) > MOST_NAME:
            raise _invalid(f"hello.{field}: expected at most {MOST_NAME} characters, got {len(text)}")
    ours, theirs = _VERSION.match(version), _VERSION.match(hello.agent_version)
    if theirs is None:
        raise _invalid(f"hello.agent_version: expected a version as 1.2.3, got {hello.agent_version[:80]!r}")
    assert ours is not None
    if ours[1] != theirs[1] or abs(int(ours[2]) - int(theirs[2])) > 1:
        raise _too_far(
            f"agent {hello.agent_version[:80]} does not match controller {version}: "
            "expected the same major version and at most one minor version between them"
        )


def is_node_name(text: str) -> bool:
    return _NODE.fullmatch(text) is not None


def admit_batch(batch: health_pb2.EventBatch, settings: AdmissionSettings) -> None:
    """Raises Refused where a batch is too large, or an event has no valid boot, sequence number or time."""
    if len(batch.events) > settings.max_events_per_batch:
        raise _invalid(f"{len(batch.events)} events in a batch; at most {settings.max_events_per_batch} are taken")
    for event in batch.events:
        if not 1 <= event.seq <= _MAX_SEQ:
            raise _invalid(f"event.seq: expected 1 to {_MAX_SEQ}, got {event.seq}")
        if not _BOOT_ID.fullmatch(event.boot_id):
            raise _invalid(f"event.boot_id: expected letters, digits and dashes, got {event.boot_id[:80]!r}")
        if event.boot_id == CONTROLLER_BOOT:
            raise _invalid(f"event.boot_id: {CONTROLLER_BOOT!r} names the controller's own events")
        if not 0 <= event.at_unix_us < _LAST_US:
            raise _invalid(f"event.at_unix_us: expected a time from 1970 to 2999, got {event.at_unix_us}")
        if event.at_boot_us > _LONGEST_UP_US:
            raise _invalid(f"event.at_boot_us: expected at most {_LONGEST_UP_US} (20 years), got {event.at_boot_us}")


def admit_watch(request: health_pb2.WatchRequest) -> None:
    """Raises Refused where the database cannot answer the request."""
    if request.after_cursor > _MAX_SEQ:
        raise _invalid(f"after_cursor: expected at most {_MAX_SEQ}, got {request.after_cursor}")
    for name, wanted in (("nodes", request.nodes), ("faults", request.faults)):
        if len(wanted) > _MAX_NAMES or any("\0" in text for text in wanted):
            raise _invalid(f"{name}: expected at most {_MAX_NAMES} names")


def _invalid(reason: str) -> Refused:
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, reason)


def _too_far(reason: str) -> Refused:
    return Refused(grpc.StatusCode.FAILED_PRECONDITION, reason)
