"""The policy's step as every test takes it: each one is held against the invariants."""

from dataclasses import dataclass, field
from datetime import datetime

from nodetriage.controller.policy import transition
from nodetriage.controller.policy.state import ActionKind, Event, FleetState, Step
from nodetriage.controller.policy.verify.invariants import check_invariants, check_step
from nodetriage.controller.settings.rules import Policy


def step(state: FleetState, event: Event, now: datetime, policy: Policy, *, whole: bool = True) -> Step:
    """`whole`: the whole state is checked too, at a cost that grows with the fleet."""
    taken = transition.step(state, event, now, policy)
    broken = check_step(state, event, taken, now, policy) + (check_invariants(taken.state) if whole else ())
    assert not broken, (broken, event)
    return taken


@dataclass
class Steps:
    """The steps of one history: no action is decided twice in it. The whole state is checked at every `whole_every`."""

    whole_every: int = 1
    taken: int = 0
    decided: set[str] = field(default_factory=set)

    def step(self, state: FleetState, event: Event, now: datetime, policy: Policy) -> Step:
        self.taken += 1
        taken = step(state, event, now, policy, whole=self.taken % self.whole_every == 0)
        for action in taken.actions:
            assert action.id not in self.decided or action.kind is ActionKind.SHADOW, f"{action.id} is decided twice"
            self.decided.add(action.id)
        return taken
