"""The policy's state of the fleet besides nodes and jobs: breaker, fleet incidents, maintenance, reservations."""

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
    failed: tuple[datetime, ...] = ()  # when outages of the scheduler began, within the window
    outage_since: datetime | None = None  # the scheduler has not answered since

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None


@dataclass(frozen=True, slots=True)
class FleetIncident:
    """One cause seen on many nodes. It covers the nodes with the fault: in `place`, or anywhere where that is "".

    It covers no fault that began before `since`. One that is the nodes' own hardware's covers none after `until`; a
    shared cause lasts until the incident ends.
    """

    id: str
    fault: str
    checks: tuple[str, ...]  # what told it: another fault of the same check is not independent of it
    place: str  # as "switch leaf3"
    shared: str  # what the nodes have in common, as text
    opened_at: datetime
    nodes: int  # at its height
    since: datetime
    until: datetime | None = None  # None: until it ends
    joined_at: datetime | None = None  # when the controller last learned of a node that is part of it
    below_since: datetime | None = None  # its count fell then
    told_at: datetime | None = None  # when operators were last told that it is open


@dataclass(frozen=True, slots=True)
class MaintenanceFact:
    """Someone works on the node: what is found is recorded, and nothing is done about it."""

    since: datetime
    actor: str
    reason: str
    source: Literal["operator", "scheduler"]  # the scheduler's ends when its reservation does
    until: datetime | None = None  # None: the scheduler's


@dataclass(frozen=True, slots=True)
class PauseFact:
    """An operator wants no drain and no requeue until then."""

    since: datetime
    until: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class AdmittedDrain:
    """A drain that the limits let through. It uses up the budget of an hour, once for each node."""

    node: str
    at: datetime
    partitions: tuple[str, ...] = ()
    witnessed: bool = False  # for a witnessed hardware fault, which has a larger limit of its own
    refused: bool = False  # Slurm drained it, because a hook of ours refused a job: that counts, and no limit held it


@dataclass(frozen=True, slots=True)
class LemonVerdict:
    """The history shows that a node fails far more often than the others."""

    node: str
    chance: float  # that an ordinary node of this fleet looks as bad
    why: str


@dataclass(frozen=True, slots=True)
class LemonsFound:
    """What a study of the history found; it is an event for the policy."""

    until: datetime  # the end of the studied window
    verdicts: tuple[LemonVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What people, the scheduler and other tools do with a node, and the notices about it."""

    unlisted: bool = False  # the scheduler has no such node, or only a FUTURE one
    ticket: str = ""  # of its repair
    resumed: tuple[datetime, ...] = ()  # when another tool resumed it in spite of its fault, within a day
    held_told_at: datetime | None = None  # when operators were last told that a critical finding is held
    lemon_told_at: datetime | None = None  # when a verdict on the node was last reported
    lemon_lifted_at: datetime | None = None  # an operator said that it is no lemon
    joined: str = ""  # the fleet incident of which operators were last told that the node is part of it


@dataclass(frozen=True, slots=True)
class ReservationFact:
    """A reservation that runs now: its nodes, those of them that the scheduler cannot use, how many it needs."""

    name: str
    nodes: tuple[str, ...]
    out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookFinding:
    """A finding for which the hooks of its node may refuse a job, or (`why`) may not."""

    check: str
    component: str
    fault: str
    incident: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class HookFacts:
    """What the Slurm hooks of one node may do. `last_granted_at`: the last change at which it had a grant."""

    granted: tuple[HookFinding, ...] = ()
    held: tuple[HookFinding, ...] = ()
    last_granted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CheckFact:
    """One check of a node, as a heartbeat reports it. `outcome` is ok, findings, skipped, broken or hung."""

    check: str
    outcome: str
    ran_at: datetime | None  # the end of the run that gave the outcome, by our clock; None: it never ran


@dataclass(frozen=True, slots=True)
class ChecksReported:
    """What a node's heartbeat says of the checks that can see the faults it is drained for."""

    node: str
    boot_id: str
    at: datetime  # when the heartbeat arrived
    checks: tuple[CheckFact, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentAhead:
    """A controller acknowledged events of this node up to `acked_seq`; the newest in the database is `stored_seq`."""

    node: str
    boot_id: str
    acked_seq: int
    stored_seq: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What we did to a job: (its restart count then, when), and when a held one may go on."""

    job: str
    requeued: tuple[tuple[int, datetime], ...] = ()
    release_at: datetime | None = None
    node: str = ""
    incident: str = ""
