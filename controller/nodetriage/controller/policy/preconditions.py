"""Whether a recorded action is still to be done when its turn comes: the world went on meanwhile. Pure."""

import enum
from datetime import datetime
from typing import NamedTuple

from nodetriage.controller.policy import breaker, common_mode, evaluate
from nodetriage.controller.policy.drains import return_gate
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainFact,
    DrainStatus,
    FleetState,
    NodeFacts,
    NodeState,
)
from nodetriage.controller.settings.rules import Mode, Policy


class Then(enum.Enum):
    DO = "do"
    WAIT = "wait"  # not now
    CANCEL = "cancel"  # not any more


class Rechecked(NamedTuple):
    then: Then
    why: str = ""


GO = Rechecked(Then.DO)
_JOBS = (ActionKind.REQUEUE, ActionKind.CANCEL)


def recheck(state: FleetState, action: Action, now: datetime, policy: Policy) -> Rechecked:
    """To be asked with the state as of now, just before the action is tried."""
    node = state.nodes.get(action.node)
    checked = (*_JOBS, ActionKind.WARN, ActionKind.DRAIN, ActionKind.UNDRAIN)
    if action.kind not in checked:
        return GO
    if node is None or node.drain is None or node.drain.incident != action.incident:
        return Rechecked(Then.CANCEL, "its incident is over")
    if node.maintenance is not None:
        return Rechecked(Then.CANCEL, f"{action.node} is in maintenance")
    if return_gate.awaits_boot(node):
        return Rechecked(Then.WAIT, f"{action.node} is rebooting: its new boot has not reported yet")
    if action.kind is not ActionKind.UNDRAIN and policy.mode is not Mode.ENFORCE:
        return Rechecked(Then.CANCEL, f"the mode is {policy.mode}")
    if action.kind is ActionKind.DRAIN:
        return _drain(state, node, node.drain, now, policy)
    if action.kind is ActionKind.UNDRAIN:
        wanted = node.drain.status is DrainStatus.RETURNING
        return GO if wanted else Rechecked(Then.CANCEL, "a fault came back first")
    if action.kind is ActionKind.WARN:
        return GO
    if not node.drain.at_once and (why := breaker.queued_reason(state)):
        return Rechecked(Then.WAIT, why)
    if common_mode.covering(state, node) and not evaluate.acting(state, node, now, policy):
        return Rechecked(Then.WAIT, "its fault is a fleet incident's")
    return GO


def _drain(state: FleetState, node: NodeFacts, drain: DrainFact, now: datetime, policy: Policy) -> Rechecked:
    if drain.status is not DrainStatus.ASKED:
        return Rechecked(Then.CANCEL, f"its drain is {drain.status}")
    if drain.refused_job:
        return GO  # Slurm drains it by itself: what is left to do is the reason
    if not drain.at_once and (why := breaker.queued_reason(state)):
        return Rechecked(Then.CANCEL, why)
    if node.upkeep.unlisted:
        return Rechecked(Then.CANCEL, "the scheduler lists no node of this name")
    if evaluate.acting(state, node, now, policy) or node.state is NodeState.LEMON or drain.ordered_by:
        return GO
    shared = common_mode.covering(state, node)
    return Rechecked(Then.CANCEL, f"fleet incident {shared[0].id}" if shared else "the fault was gone first")
