"""The words of the policy: states, and kinds of events, drains and actions."""

import enum
from collections.abc import Mapping


class NodeState(enum.StrEnum):
    BURN_IN = "BurnIn"  # being proved before it may work
    HEALTHY = "Healthy"
    SUSPECT = "Suspect"  # something was found; no new jobs as soon as the drain limits allow
    DRAINED = "Drained"  # out of the scheduler's hands, nothing of ours left running on it
    REPAIR = "Repair"
    LEMON = "Lemon"  # failed too often; not taken back automatically
    RETIRED = "Retired"


NEXT: Mapping[NodeState, frozenset[NodeState]] = {
    NodeState.BURN_IN: frozenset({NodeState.HEALTHY, NodeState.REPAIR}),
    NodeState.HEALTHY: frozenset({NodeState.SUSPECT, NodeState.LEMON}),
    NodeState.SUSPECT: frozenset({NodeState.HEALTHY, NodeState.DRAINED}),
    NodeState.DRAINED: frozenset({NodeState.REPAIR}),
    NodeState.REPAIR: frozenset({NodeState.BURN_IN, NodeState.RETIRED}),
    NodeState.LEMON: frozenset({NodeState.REPAIR}),
    NodeState.RETIRED: frozenset({NodeState.BURN_IN}),  # an operator takes the word back
}


class EventKind(enum.StrEnum):
    """The kinds of an agent's event that say something about a finding or a boot; the rest is history only."""

    RAISED = "raised"
    CHANGED = "changed"
    REPEATED = "repeated"
    CLEARED = "cleared"
    STARTED = "started"
    REFUSED = "refused"  # a hook refused a job for the finding
    OTHER = "other"


class DrainStatus(enum.StrEnum):
    WANTED = "wanted"  # the drain limits have not let it through yet
    ASKED = "asked"  # the action is recorded and is being done
    DONE = "done"  # the scheduler has shown it
    RETURNING = "returning"  # the undrain is recorded and is being done


class ActionKind(enum.StrEnum):
    DRAIN = "drain"
    REQUEUE = "requeue"
    RELEASE = "release"
    CANCEL = "cancel"  # a job that cannot be requeued is ended
    WARN = "warn"  # a message to a job: its node leaves after it
    UNDRAIN = "undrain"
    SHADOW = "shadow"  # what would be done, and is not


class ActionOutcome(enum.StrEnum):
    DONE = "done"
    THEIRS = "theirs"  # someone else had drained the node: their reason stays
    GONE = "gone"  # nothing was left to do: the job had ended, or was already requeued
    REFUSED = "refused"  # the scheduler will not do it; the text says why
    CANCELLED = "cancelled"  # looked at again before it was done, and no longer wanted
