"""The controller's word to each node's Slurm hooks: put into messages, and sent when it changes or grows old."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.controller.policy import breaker
from nodetriage.controller.policy.fleet_state import FleetIncident, HookFacts, HookFinding
from nodetriage.controller.policy.hooks import grants
from nodetriage.controller.policy.state import FleetState
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.v1 import health_pb2

_MODES = {
    Mode.OBSERVE: health_pb2.HOOK_MODE_OBSERVE,
    Mode.RECOMMEND: health_pb2.HOOK_MODE_RECOMMEND,
    Mode.ENFORCE: health_pb2.HOOK_MODE_ENFORCE,
}
RENEWALS = 3  # within the time for which a word is valid: two may be lost
NOTHING = HookFacts()

Send = Callable[[str, health_pb2.ControllerMessage], None]


class HookAuthorities:
    """Owned by the event loop. `send` gives a message to the node's stream, if it has one; `connected` names those."""

    def __init__(self, send: Send, connected: Callable[[], Iterable[str]]) -> None:
        self._send, self._connected = send, connected
        self._version = 0
        self._rests_on: tuple[Policy, str, tuple[FleetIncident, ...]] | None = None  # what `_fleet` was made from
        self._excluded: tuple[list[str], list[str]] = ([], [])
        self._fleet: health_pb2.HookAuthority | None = None
        self._hooks: Mapping[str, HookFacts] = {}
        self._renew_s = 60.0

    def update(self, state: FleetState, policy: Policy) -> None:
        """After each step: tells those nodes whose hooks may do something else than before."""
        before, self._hooks = self._hooks, state.hooks
        if self._is_news(state, policy):
            self._tell(self._connected())
        elif before is not state.hooks:
            self._tell(n for n in {*before, *state.hooks} if before.get(n) != state.hooks.get(n))

    def _is_news(self, state: FleetState, policy: Policy) -> bool:
        """Whether every node is to know something else than before. Cheap where nothing changed: each step asks."""
        rests_on = (policy, breaker.queued_reason(state), state.fleet_incidents)
        if rests_on == self._rests_on:
            return False
        if self._rests_on is None or policy is not self._rests_on[0]:
            self._excluded = excluded(policy)
            self._renew_s = policy.hooks.valid_s / RENEWALS
        self._rests_on = rests_on
        before, self._fleet = self._fleet, fleet_wide(state, policy, *self._excluded)
        return before != self._fleet

    def word(self, node: str) -> health_pb2.ControllerMessage | None:
        """What this node is to know now; None before the state is known."""
        if self._fleet is None:
            return None
        self._version += 1
        word = health_pb2.HookAuthority(version=self._version)
        word.MergeFrom(self._fleet)
        facts = self._hooks.get(node, NOTHING)
        word.granted.extend(_wire(f) for f in facts.granted)
        word.held.extend(_wire(f) for f in facts.held)
        return health_pb2.ControllerMessage(hooks=word)

    async def renew(self) -> None:
        """Until cancelled: repeats the word before it is too old to be relied on."""
        while True:
            await asyncio.sleep(self._renew_s)
            self._tell(self._connected())

    def _tell(self, nodes: Iterable[str]) -> None:
        for node in tuple(nodes):
            if (message := self.word(node)) is not None:
                self._send(node, message)


def fleet_wide(
    state: FleetState, policy: Policy, excluded_faults: list[str], excluded_checks: list[str]
) -> health_pb2.HookAuthority:
    """What is the same for every node."""
    return health_pb2.HookAuthority(
        valid_ms=round(policy.hooks.valid_s * 1000),
        mode=_MODES[grants.mode(policy)],
        breaker_why=breaker.queued_reason(state),
        shared_faults=policy.common_mode.shared_faults,
        excluded_faults=excluded_faults,
        excluded_checks=excluded_checks,
        incident_faults=sorted({i.fault for i in state.fleet_incidents}),
    )


def excluded(policy: Policy) -> tuple[list[str], list[str]]:
    """Faults and checks for which no hook refuses a job while the controller cannot be asked.

    A fault counts that the policy only records somewhere, or does not trust yet.
    """
    named = {rule.fault for rule in policy.rule if rule.fault and not rule.action.drains}
    for fault in faults():
        rule = policy.rule_for(fault, Severity.CRITICAL, (), "")
        if not rule.action.drains or policy.untrusted("", fault):
            named.add(fault)
    return sorted(named | set(policy.shadow.faults)), sorted(policy.shadow.checks)


def _wire(finding: HookFinding) -> health_pb2.HookFinding:
    return health_pb2.HookFinding(
        check=finding.check,
        component=finding.component,
        fault=finding.fault,
        incident=finding.incident,
        why=finding.why,
    )
