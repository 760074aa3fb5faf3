"""What nodes share: a switch, a rack, a mount's source, a version. Pure."""

from datetime import datetime, timedelta

from nodetriage.controller.policy.findings import with_agent
from nodetriage.controller.policy.state import FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import CommonMode

MOSTLY = 0.9  # of the nodes have a thing in common: the incident names it as shared
WIDE = ("driver ", "firmware ")  # of which nobody knows how many nodes have the same
AGENT = "agent "
SOFTWARE = (AGENT, *WIDE)  # what one version finds wrongly stays until it is replaced


def places(node: NodeFacts) -> tuple[str, ...]:
    """All that the node shares with others."""
    return with_agent(node.places, node.version)


def settle_s(fleet: FleetState, node: NodeFacts, now: datetime, rules: CommonMode) -> float:
    """How long what a new version of the agent finds is to wait; 0 for the fleet's first version and for old ones."""
    return rules.new_version_hold_s if rules.enabled and _is_new(fleet, node.version, now, rules) else 0.0


def _is_new(fleet: FleetState, version: str, now: datetime, rules: CommonMode) -> bool:
    if len(fleet.versions) < 2 or (met := fleet.versions.get(version)) is None:
        return False
    return met != min(fleet.versions.values()) and now - met < timedelta(seconds=rules.new_version_s)


def says_nothing(work: UnitOfWork, place: str, rules: CommonMode) -> bool:
    """A version of the agent that nearly all nodes have had for long: all faults share it, whatever their cause."""
    if not place.startswith(AGENT):
        return False
    sizes = work.fleet.sizes
    everywhere = sizes.get(place, 0) >= MOSTLY * sum(n for p, n in sizes.items() if p.startswith(AGENT))
    return everywhere and not _is_new(work.fleet, place.removeprefix(AGENT), work.now, rules)


def places_of(node: NodeFacts, fault: str) -> tuple[str, ...]:
    """What the node shares, and what this fault on it does."""
    told = {place for f in node.findings if f.is_open and f.fault == fault for place in f.places}
    return (*sorted(told), *places(node))
