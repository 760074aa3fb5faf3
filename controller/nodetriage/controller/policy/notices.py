"""What the policy says to people: notices, which anyone may read, and replies, which answer one operator's command."""

import enum
from dataclasses import dataclass


class NoticeKind(enum.StrEnum):
    RECOMMENDED = "recommended"  # what mode "enforce" would do
    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    FLEET_INCIDENT_OPENED = "fleet_incident_opened"
    FLEET_INCIDENT_JOINED = "fleet_incident_joined"  # by one node
    FLEET_INCIDENT_OPEN = "fleet_incident_open"  # still, and repeated
    FLEET_INCIDENT_ENDED = "fleet_incident_ended"
    DRAIN_HELD = "drain_held"  # a critical finding that drains nothing yet; repeated while it is held
    DRAIN_TAKEN_OVER = "drain_taken_over"  # another's reason replaced ours
    RESUMED_WITH_FAULT = "resumed_with_fault"
    RESERVATION_SHORT = "reservation_short"  # a critical fault goes before a reservation's size
    MAINTENANCE_ENDED = "maintenance_ended"  # its time is over
    PAUSED = "paused"
    PAUSE_ENDED = "pause_ended"
    LEMON_FOUND = "lemon_found"  # by its history
    LEMON_LIMIT = "lemon_limit"
    HOOKS_HELD = "hooks_held"  # a node takes jobs in spite of a critical fault
    JOB_REFUSED_BY_HOOK = "job_refused_by_hook"  # where the policy does not enforce
    DATABASE_OLDER = "database_older"  # than what Slurm or an agent shows: it was restored
    JOB_LEFT = "job_left"  # it cannot be requeued
    JOB_HELD = "job_held"
    JOB_REFUSED = "job_refused"  # the scheduler refuses to requeue or to cancel it


@dataclass(frozen=True, slots=True)
class Notice:
    """`id` names what it is about: the database keeps the first notice of an id. `node` is "" for the fleet."""

    id: str
    kind: NoticeKind
    text: str
    node: str = ""
    incident: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an operator's command. `text` says why it is refused; "" where it is accepted."""

    accepted: bool
    text: str = ""
