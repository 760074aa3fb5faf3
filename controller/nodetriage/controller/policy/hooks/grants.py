"""Which node's hooks may refuse jobs, for which findings: pure. A hook itself asks nobody while its job waits.

What the drain limits let through needs no hook: the node is drained at once. A node whose drain waits gets a grant for
its critical findings, so that it takes no more jobs meanwhile, and no more than `[hooks] max_nodes` nodes have one
within the window. What shares its cause with other nodes gets one only where it is on this node alone. Without a grant
the job is let in, and the operator learns why.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.policy import breaker, evaluate
from nodetriage.controller.policy.facts.nodes import persistent
from nodetriage.controller.policy.fleet_state import HookFacts, HookFinding
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import DrainStatus, FindingFact, FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import HookLimits
from nodetriage.controller.settings.rules import Mode, Policy

MOST_FINDINGS = 16  # of one node in one grant: a job is refused for any of them
NOTHING = HookFacts()


def mode(policy: Policy) -> Mode:
    """The hooks' own mode, never beyond the controller's."""
    if policy.mode is Mode.ENFORCE and policy.hooks.mode == "observe":
        return Mode.OBSERVE
    return policy.mode


def decide(work: UnitOfWork, names: Iterable[str], policy: Policy) -> None:
    """To be called last in a step, with the nodes that it was about: the drain limits have had their say by then."""
    known = sorted(work.fleet.hooks) if work.ask_limits else ()
    for name in dict.fromkeys((*names, *known)):
        if (node := work.node(name)) is not None:
            _decide(work, node, policy)


def used(state: FleetState, now: datetime, limits: HookLimits) -> frozenset[str]:
    """The nodes that count against `max_nodes`: those with a grant, and those that had one within the window."""
    return frozenset(name for name, facts in state.hooks.items() if _counts(facts, now, limits))


def _decide(work: UnitOfWork, node: NodeFacts, policy: Policy) -> None:
    before = work.fleet.hooks.get(node.node, NOTHING)
    granted: list[HookFinding] = []
    held: list[HookFinding] = []
    for finding in _refusable(work, node, policy):
        why = _held_why(work, node, finding, policy)
        incident = node.drain.incident if node.drain else ""
        (held if why else granted).append(HookFinding(finding.check, finding.component, finding.fault, incident, why))
    last = work.now if granted or before.granted else before.last_granted_at
    if before.granted == tuple(granted) and granted:
        last = before.last_granted_at  # it counts for as long as it lasts anyway
    after = HookFacts(tuple(granted), tuple(held), last)
    if not (granted or held or _counts(after, work.now, policy.hooks)):
        after = NOTHING
    if after != before:
        hooks = persistent(work.fleet.hooks)
        work.set_fleet(hooks=hooks.set(node.node, after) if after != NOTHING else hooks.delete(node.node))
        _say_held(work, node.node, before, after)


def _refusable(work: UnitOfWork, node: NodeFacts, policy: Policy) -> list[FindingFact]:
    """The node's critical findings for which it waits to be drained, the oldest first."""
    if mode(policy) is not Mode.ENFORCE or node.maintenance is not None or node.silent_since is not None:
        return []
    if node.drain is None or node.drain.status is not DrainStatus.WANTED:
        return []
    due = (finding for rule, finding in evaluate.acting(work.fleet, node, work.now, policy) if rule.action.drains)
    present = (f for f in due if f.severity >= Severity.CRITICAL and f.boot_id == node.boot_id)
    return sorted(present, key=lambda f: f.event_id)[:MOST_FINDINGS]


def _held_why(work: UnitOfWork, node: NodeFacts, finding: FindingFact, policy: Policy) -> str:
    """Why no job is refused for it; "" if one may be."""
    if why := breaker.queued_reason(work.fleet):
        return why
    if policy.common_mode.is_shared(finding.fault) and set(work.showing(finding.fault)) - {node.node}:
        return f"{finding.fault} is on other nodes too"
    limits = policy.hooks
    if len(used(work.fleet, work.now, limits) - {node.node}) >= limits.max_nodes:
        return f"no more than {limits.max_nodes} nodes may refuse jobs within {limits.window_s:g} s"
    return ""


def _counts(facts: HookFacts, now: datetime, limits: HookLimits) -> bool:
    last = facts.last_granted_at
    return bool(facts.granted) or (last is not None and now - last < timedelta(seconds=limits.window_s))


def _say_held(work: UnitOfWork, name: str, before: HookFacts, after: HookFacts) -> None:
    """One notice for a node, however many findings of it are held."""
    told = {(f.component, f.fault) for f in before.held}
    for finding in after.held:
        if (finding.component, finding.fault) not in told:
            text = f"{name} goes on taking jobs in spite of {finding.fault} on {finding.component}: {finding.why}"
            about = f"{name}-{work.stamp}"
            work.notify(NoticeKind.HOOKS_HELD, about, text, node=name, incident=finding.incident)
            return
