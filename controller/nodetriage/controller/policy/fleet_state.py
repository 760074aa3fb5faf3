"""What the brain remembers of the fleet besides nodes and jobs: breaker, fleet incidents, maintenance, reservations."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class BreakerFacts:
    """Open: drains and requeues are stopped until a person closes it. What came before `closed_at` counts no more."""

    opened_at: datetime | None = None
    why: str = ""
    closed_at: datetime | None = None
    closed_by: str = ""
    closed_why: str = ""
    acted: tuple[datetime, ...] = ()  # drains and requeues that were decided, within the window
    failed: tuple[datetime, ...] = ()  # times the scheduler did not do what it was asked, within the window

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None


@dataclass(frozen=True, slots=True)
class FleetIncident:
    """One cause seen on many nodes. It covers every node with the fault: in `place`, or anywhere where that is ""."""

    id: str
    fault: str
    checks: tuple[str, ...]  # what told it: another fault of the same check is not independent of it
    place: str  # as "switch leaf3"
    shared: str  # what the nodes have in common, in words
    opened_at: datetime
    nodes: int  # at its height
    below_since: datetime | None = None  # its count fell then


@dataclass(frozen=True, slots=True)
class MaintenanceFact:
    """Someone works on the node: what is found is recorded, and nothing is done about it."""

    since: datetime
    actor: str
    reason: str
    source: Literal["operator", "scheduler"]  # the scheduler's ends when its reservation does


@dataclass(frozen=True, slots=True)
class ReservationFact:
    """A reservation that runs now: its nodes, those of them that the scheduler cannot use, how many it needs."""

    name: str
    nodes: tuple[str, ...]
    out: tuple[str, ...] = ()
