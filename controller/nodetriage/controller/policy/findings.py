"""What is known of each node: pure.

An event may arrive late or twice; the last one by the node's own numbering counts.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.liveness import CONTROLLER_BOOT
from nodetriage.controller.policy.state import EventKind, FindingFact, NodeEvent, NodeFacts, NodeState
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Policy

# A node that invents parts without end must not fill the memory; the oldest closed findings are forgotten first.
MAX_FINDINGS = 256
MAX_VERSIONS = 64  # of agents that are remembered; a fleet has a few
# A clock that differs by less counts as right, and what it says as live.
MAX_SKEW = timedelta(minutes=5)


def learn(work: UnitOfWork, event: NodeEvent, policy: Policy) -> str:
    """Takes in what a node said; returns its name if that may change what is to be done."""
    node = work.node(event.node)
    if node is None:
        first = NodeState.HEALTHY if policy.adopt_as == "healthy" else NodeState.BURN_IN
        node = work.enter(event.node, first)
    if event.version and event.version not in work.fleet.versions:
        met = tuple(work.fleet.versions.items())
        work.set_fleet(versions=dict((*met[:1], *met[1:][2 - MAX_VERSIONS :], (event.version, work.now))))
    known_boot = _boot(node, event)
    if known_boot is None:
        return ""  # of an earlier boot, told late: history, but no longer true
    known_boot = _with_boot_time(known_boot, event)
    if known_boot is not node:
        node = work.put(known_boot)
    if event.kind in (EventKind.STARTED, EventKind.REFUSED, EventKind.OTHER):
        return event.node
    key = (event.check, event.component, event.fault)
    before = next((f for f in node.findings if f.key == key), None)
    if before is not None and before.boot_id == event.boot_id and event.seq < before.seq + (not event.restated):
        return ""
    change(work, node, _told(node, before, event, work))
    return event.node


def change(work: UnitOfWork, node: NodeFacts, finding: FindingFact) -> NodeFacts:
    """The node with this finding in place of the one of the same key."""
    others = tuple(f for f in node.findings if f.key != finding.key)
    if len(others) >= MAX_FINDINGS:
        oldest = min(others, key=lambda f: (f.is_open, f.severity, f.seq))
        others = tuple(f for f in others if f is not oldest)
    return work.put(replace(node, findings=(*others, finding)))


def _boot(node: NodeFacts, event: NodeEvent) -> NodeFacts | None:
    """The node in the event's boot; None where that boot is over. A new boot starts with nothing found."""
    if event.boot_id == CONTROLLER_BOOT:
        return node
    if not event.present:
        return None
    profile, version = event.profile or node.profile, event.version or node.version
    if (node.boot_id, node.profile, node.version) == (event.boot_id, profile, version):
        return node
    kept = node.findings
    if node.boot_id != event.boot_id:
        kept = tuple(f for f in node.findings if f.boot_id == CONTROLLER_BOOT)
    node = replace(node, profile=profile, version=version)
    if node.boot_id == event.boot_id:
        return node
    return replace(node, boot_id=event.boot_id, boot_began_at=None, findings=kept, checks=None, reboot_at=None)


def _with_boot_time(node: NodeFacts, event: NodeEvent) -> NodeFacts:
    """The node with its boot as the quickest event allows, or one whose wall clock says that it came at once.

    The latter mends the time after the controller's own clock was behind.
    """
    if event.at_boot_s is None or event.received_at is None or event.boot_id == CONTROLLER_BOOT:
        return node
    began_at = event.received_at - timedelta(seconds=event.at_boot_s)
    came_at_once = abs(event.received_at - event.at) <= MAX_SKEW
    if node.boot_began_at is not None and began_at >= node.boot_began_at and not came_at_once:
        return node
    return replace(node, boot_began_at=began_at)


def _told(node: NodeFacts, before: FindingFact | None, event: NodeEvent, work: UnitOfWork) -> FindingFact:
    if event.kind is EventKind.CLEARED:
        told = before or _new(node, event, work)
        return replace(told, is_open=False, seq=event.seq, event_id=event.id)
    if before is None or not before.is_open:
        return _new(node, event, work)
    repeated = event.kind is not EventKind.CHANGED
    return replace(
        before,
        severity=event.severity,
        confidence=event.confidence,
        seq=event.seq,
        times=before.times + repeated,
        # An operator took it back as it was then, not as it is now.
        accepted=before.accepted and not repeated and event.severity <= before.severity,
    )


def _new(node: NodeFacts, event: NodeEvent, work: UnitOfWork) -> FindingFact:
    return FindingFact(
        check=event.check,
        component=event.component,
        fault=event.fault,
        severity=Severity(event.severity),
        raised_at=_began_at(node, event, work),
        known_at=work.now,
        event_id=event.id,
        boot_id=event.boot_id,
        seq=event.seq,
        # The agent that found it: an incident of a version covers the finding also when the agent is rolled back.
        places=with_agent(event.places, node.version),
        confidence=event.confidence,
    )


def with_agent(places: tuple[str, ...], version: str) -> tuple[str, ...]:
    """What a node shares with others, the agent's `version` included where it is known."""
    return (*places, f"agent {version}") if version else places


def _began_at(node: NodeFacts, event: NodeEvent, work: UnitOfWork) -> datetime:
    """By the node's wall clock or by the time since its boot, whichever says that less time went by: neither skew nor a
    step of either clock makes an event late.
    """
    at = event.at
    if event.at_boot_s is not None and node.boot_began_at is not None:
        at = max(at, node.boot_began_at + timedelta(seconds=event.at_boot_s))
    return began_at(at, event.received_at or work.now)


def began_at(at: datetime, received_at: datetime) -> datetime:
    """When something began: the node's own time `at`, as far as its clock may be right.

    Nothing begins after the controller received it. A small difference is skew, and a large one a late delivery.
    """
    return at if received_at - at > MAX_SKEW else received_at
