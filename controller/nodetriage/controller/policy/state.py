"""The policy's values: its state, its inputs, its actions. Frozen, and nothing here reads or acts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from immutables import Map

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.policy.agents.epoch import Epoch
from nodetriage.controller.policy.facts.kinds import NEXT as NEXT
from nodetriage.controller.policy.facts.kinds import ActionKind as ActionKind
from nodetriage.controller.policy.facts.kinds import ActionOutcome as ActionOutcome
from nodetriage.controller.policy.facts.kinds import DrainStatus as DrainStatus
from nodetriage.controller.policy.facts.kinds import EventKind as EventKind
from nodetriage.controller.policy.facts.kinds import NodeState as NodeState
from nodetriage.controller.policy.facts.nodes import NO_NODES, nodes_of, persistent
from nodetriage.controller.policy.fleet_state import (
    AdmittedDrain,
    AgentAhead,
    BreakerFacts,
    ChecksReported,
    FleetIncident,
    HookFacts,
    LemonsFound,
    MaintenanceFact,
    PauseFact,
    ReservationFact,
    Upkeep,
)
from nodetriage.controller.policy.fleet_state import JobFacts as JobFacts
from nodetriage.controller.policy.notices import Notice, Reply
from nodetriage.controller.policy.orders.command import OperatorCommand as OperatorCommand
from nodetriage.controller.scheduler import JobView, NodeView, ReservationView

NOTHING: Map[str, Any] = Map()


@dataclass(frozen=True, slots=True)
class FindingFact:
    """The last word on one finding. A cleared one is kept: an older event may still arrive after a newer."""

    check: str
    component: str
    fault: str
    severity: Severity
    raised_at: datetime  # when it began since it was last clear, by the node's clock (`findings.began_at`)
    known_at: datetime  # when the controller learned of that
    event_id: int
    boot_id: str
    seq: int
    times: int = 1
    is_open: bool = True
    shadowed: bool = False  # its shadow action was recorded
    accepted: bool = False  # an operator put the node back in spite of it
    places: tuple[str, ...] = ()  # what it shares with others by its evidence, as "mount source fs1:/home"
    confidence: Confidence = Confidence.STATE

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.check, self.component, self.fault)


@dataclass(frozen=True, slots=True)
class DrainFact:
    """A node that is to be, or is, out of work, and why. There is at most one a node."""

    incident: str
    fault: str  # of the worst finding
    component: str
    severity: Severity
    requeue: bool  # its jobs are not left to end
    status: DrainStatus
    wanted_at: datetime
    causes: tuple[str, ...]  # every fault that had a part in it
    done_at: datetime | None = None
    theirs: bool = False  # the node is drained under someone else's reason
    queued_reason: str = ""  # the limit while WANTED
    clear_since: datetime | None = None
    by_hand: bool = False  # an operator asked for its return
    refused_job: str = ""  # a hook of ours refused it: what Slurm did to the node for that is ours
    asks: int = 0  # how often the drain was let through: it may be called off before it is done
    asked_at: datetime | None = None  # when it was last let through
    witnessed: bool = False  # its finding has the highest confidence
    ordered_by: str = ""  # the operator who ordered it
    at_once: bool = False  # it was ordered past the limits, the breaker and a pause


@dataclass(frozen=True, slots=True)
class NodeFacts:
    node: str
    state: NodeState
    since: datetime
    boot_id: str = ""
    boot_began_at: datetime | None = None  # by the controller's clock, as early as any event of the boot allows
    profile: str = ""
    partitions: tuple[str, ...] = ()
    findings: tuple[FindingFact, ...] = ()
    drain: DrainFact | None = None
    version: str = ""  # of its agent
    places: tuple[str, ...] = ()  # what it shares with others, as "rack r7", "switch leaf3"
    silent_since: datetime | None = None  # its agent has been silent since
    asleep: bool = False  # switched off to save power, or rebooting: it may be silent
    maintenance: MaintenanceFact | None = None
    removals: tuple[datetime, ...] = ()  # our drains of it, within the lemon window
    upkeep: Upkeep = field(default_factory=Upkeep)
    checks: ChecksReported | None = None  # the last report of this boot
    reboot_at: datetime | None = None  # the scheduler showed then that it reboots; its new boot has not reported yet

    @property
    def open_findings(self) -> tuple[FindingFact, ...]:
        return tuple(f for f in self.findings if f.is_open)


@dataclass(frozen=True, slots=True)
class FleetState:
    """All of the policy's state, as the state store holds it: a restart goes on where this one ended."""

    cursor: int = 0  # of the last event that was weighed
    incidents: int = 0  # how many were ever opened
    nodes: Mapping[str, NodeFacts] = NO_NODES
    jobs: Mapping[str, JobFacts] = NOTHING
    admitted: tuple[AdmittedDrain, ...] = ()  # within the last hour
    sizes: Mapping[str, int] = field(default_factory=dict)  # nodes in each partition and place; "" is the fleet
    breaker: BreakerFacts = field(default_factory=BreakerFacts)
    pause: PauseFact | None = None
    fleet_incidents: tuple[FleetIncident, ...] = ()
    incidents_ended: Mapping[str, datetime] = field(default_factory=dict)  # of the fleet, by fault, the last one
    reservations: tuple[ReservationFact, ...] = ()
    versions: Mapping[str, datetime] = field(default_factory=dict)  # of agents, each when it was first met
    hooks: Mapping[str, HookFacts] = NOTHING  # by node: what its Slurm hooks may refuse jobs for
    showing: Mapping[str, Mapping[str, datetime]] = NOTHING  # fault -> node -> when last raised
    epoch: Epoch = field(default_factory=Epoch)

    def __post_init__(self) -> None:
        """Maps that share what did not change: a step costs the same however large the fleet is."""
        object.__setattr__(self, "nodes", nodes_of(self.nodes))
        for name in ("jobs", "hooks", "showing"):
            object.__setattr__(self, name, persistent(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do, once. `id` names what is done and not the attempt: a second attempt has the same id."""

    id: str
    kind: ActionKind
    node: str
    incident: str = ""
    fault: str = ""
    component: str = ""
    severity: Severity = Severity.INFO
    job: str = ""
    restarts: int = 0  # of the job when this was decided: a higher count means that it was requeued since
    hold: bool = False  # the requeued job is to be held
    text: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """`before` is None for a node that was never seen."""

    node: str
    before: NodeState | None
    after: NodeState
    cause: str
    actor: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One stored event of a node's agent."""

    id: int
    node: str
    boot_id: str
    seq: int
    at: datetime
    kind: EventKind
    check: str = ""
    component: str = ""
    fault: str = ""
    severity: Severity = Severity.INFO
    profile: str = ""
    present: bool = True  # of the boot that the node is in now, by its own hello
    version: str = ""  # of its agent
    places: tuple[str, ...] = ()  # what the fault shares with others, by its evidence
    received_at: datetime | None = None  # by the controller
    at_boot_s: float | None = None  # since the node's boot, whatever its wall clock does
    job: str = ""  # that was refused
    overtakes: bool = False  # it is taken before others that were stored before it
    confidence: Confidence = Confidence.STATE
    restated: bool = False  # the controller's, from the agent's open set as of `seq`


@dataclass(frozen=True, slots=True)
class SchedulerSeen:
    """The scheduler's nodes as they were, at the earliest, at `read_at`."""

    read_at: datetime
    nodes: Mapping[str, NodeView]
    reservations: tuple[ReservationView, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what each node shares with others


@dataclass(frozen=True, slots=True)
class ActionDone:
    """`jobs`: what held the node after a drain."""

    action: Action
    outcome: ActionOutcome
    text: str = ""
    jobs: tuple[JobView, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by: hold times, limits, returns. `thorough`: every open finding too, as the policy may be new."""

    thorough: bool = False


@dataclass(frozen=True, slots=True)
class ContactChanged:
    """Agents of which too many heartbeats are missing, and agents that report again."""

    lost: tuple[str, ...] = ()
    back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerFailed:
    """The scheduler did not answer. What it refuses to do concerns one node or job, and is no such event."""

    text: str


_Seen = NodeEvent | SchedulerSeen | ContactChanged | SchedulerFailed | ChecksReported | LemonsFound | AgentAhead
Event = _Seen | ActionDone | OperatorCommand | Tick


class Step(NamedTuple):
    """What one event led to. `reply` is None unless the event is an operator's command."""

    state: FleetState
    actions: tuple[Action, ...] = ()
    transitions: tuple[Transition, ...] = ()
    notices: tuple[Notice, ...] = ()
    reply: Reply | None = None
    touched: frozenset[str] = frozenset()  # nodes whose facts may be others than before
