"""One fault on many nodes at once is one incident of the fleet: what they share is to be repaired, not they. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.breaker import fleet_size
from nodetriage.controller.policy.fleet_state import FleetIncident
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import FindingFact, FleetState, NodeFacts
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import CommonMode
from nodetriage.controller.settings.rules import Policy

MANY_PLACES = 3  # that are ill of the same: then it is the fleet
MOSTLY = 0.9  # of the nodes have it: then it is called shared


def covers(incident: FleetIncident, node: NodeFacts, finding: FindingFact) -> bool:
    if not finding.is_open or finding.fault != incident.fault:
        return False
    return incident.place in ("", finding.place) or incident.place in places(node)


def covering(fleet: FleetState, node: NodeFacts) -> tuple[FleetIncident, ...]:
    """The fleet incidents that this node is a part of now."""
    return tuple(i for i in fleet.fleet_incidents if any(covers(i, node, f) for f in node.findings))


def places(node: NodeFacts) -> tuple[str, ...]:
    """All that the node shares with others."""
    return (*node.places, f"agent {node.version}") if node.version else node.places


def settle_s(fleet: FleetState, node: NodeFacts, now: datetime, rules: CommonMode) -> float:
    """How long what a new version of the agent finds is to wait; 0 for the fleet's first version and for old ones."""
    if len(fleet.versions) < 2 or (met := fleet.versions.get(node.version)) is None:
        return 0.0
    new = met != min(fleet.versions.values()) and now - met < timedelta(seconds=rules.new_version_s)
    return rules.new_version_hold_s if new and rules.enabled else 0.0


def told(work: UnitOfWork, name: str, fault: str, policy: Policy) -> tuple[str, ...]:
    """To be called when a node's findings changed; returns the nodes whose case is another one now."""
    rules = policy.common_mode
    shown = work.showing(fault) if fault and rules.enabled else {}
    if len(shown) < min(rules.shared_min_nodes, rules.least_nodes) or name not in shown:
        return ()
    known = [i for i in work.fleet.fleet_incidents if i.fault == fault]
    node = work.node(name)
    if node is None or any(i.place == "" for i in known) or not _would_drain(node, fault, policy):
        return ()
    window = timedelta(seconds=rules.window_s)
    recent = {n: facts for n, at in shown.items() if work.now - at <= window and (facts := work.node(n)) is not None}
    # Nodes behind a switch that is known to be ill say nothing about the rest of the fleet.
    apart = sum(not any(covers(i, n, f) for i in known for f in n.findings) for n in recent.values())
    if apart >= rules.fleet_limit(fleet_size(work.fleet)):
        return _open(work, fault, "", recent, known)
    for place in _places_of(node, fault):
        if any(i.place == place for i in known):
            continue  # a wider place may be it
        within = {n: facts for n, facts in recent.items() if place in _places_of(facts, fault)}
        if len(within) >= _place_limit(work.fleet, place, rules):
            inside = [i for i in known if set(_nodes_in(work, i)) <= within.keys()]
            if len(known) - len(inside) + 1 >= MANY_PLACES:
                return _open(work, fault, "", recent, known)
            return _open(work, fault, place, within, inside)
    return ()


def tick(work: UnitOfWork, rules: CommonMode) -> tuple[str, ...]:
    """Ends incidents whose count fell; returns the nodes that are looked at one by one again."""
    freed: list[str] = []
    kept: list[FleetIncident] = []
    for incident in work.fleet.fleet_incidents:
        nodes = _nodes_in(work, incident)
        now = replace(incident, nodes=max(incident.nodes, len(nodes)))
        limit = _limit(work.fleet, incident, rules)
        if rules.enabled and len(nodes) * 2 >= limit:
            kept.append(replace(now, below_since=None))
        elif rules.enabled and work.now - (incident.below_since or work.now) < timedelta(seconds=rules.end_s):
            kept.append(replace(now, below_since=incident.below_since or work.now))
        else:
            freed += nodes
            text = f"fleet incident {incident.id} is over: {incident.fault} is left on {len(nodes)} nodes"
            work.notify(NoticeKind.FLEET_INCIDENT_ENDED, incident.id, text, incident=incident.id)
    if tuple(kept) != work.fleet.fleet_incidents:
        work.set_fleet(fleet_incidents=tuple(kept))
    return tuple(freed)


def _open(
    work: UnitOfWork, fault: str, place: str, nodes: dict[str, NodeFacts], narrower: list[FleetIncident]
) -> tuple[str, ...]:
    """`narrower` ones of the same fault become this one, under the first one's id."""
    checks = {f.check for n in nodes.values() for f in n.findings if f.is_open and f.fault == fault}
    incident = FleetIncident(
        id=narrower[0].id if narrower else work.new_incident(),
        fault=fault,
        checks=tuple(sorted(checks)),
        place=place,
        shared=_shared(work.fleet, fault, nodes.values()),
        opened_at=narrower[0].opened_at if narrower else work.now,
        nodes=len(nodes),
    )
    others = tuple(i for i in work.fleet.fleet_incidents if i not in narrower)
    work.set_fleet(fleet_incidents=(*others, incident))
    shared = f"shared: {incident.shared}" if incident.shared else "nothing known that they share"
    text = f"fleet incident {incident.id}: {fault} on {len(nodes)} nodes; {shared}; none is drained for it"
    about = f"{incident.id}-wider" if narrower else incident.id
    work.notify(NoticeKind.FLEET_INCIDENT_OPENED, about, text, incident=incident.id)
    work.ask_brake = True
    return tuple(_nodes_in(work, incident))


def _nodes_in(work: UnitOfWork, incident: FleetIncident) -> list[str]:
    shown = ((name, work.node(name)) for name in work.showing(incident.fault))
    return [name for name, node in shown if node and any(covers(incident, node, f) for f in node.findings)]


def _places_of(node: NodeFacts, fault: str) -> tuple[str, ...]:
    """What the node shares, and what this fault on it does."""
    told = {f.place for f in node.findings if f.is_open and f.fault == fault and f.place}
    return (*sorted(told), *places(node))


def _place_limit(fleet: FleetState, place: str, rules: CommonMode) -> int:
    # Of what only the evidence names, such as a mount source, nobody knows how many share it.
    return rules.place_limit(fleet.sizes[place]) if place in fleet.sizes else rules.least_nodes


def _limit(fleet: FleetState, incident: FleetIncident, rules: CommonMode) -> int:
    if incident.place:
        return _place_limit(fleet, incident.place, rules)
    return rules.fleet_limit(fleet_size(fleet))


def _shared(fleet: FleetState, fault: str, nodes: Iterable[NodeFacts]) -> str:
    """What most of these nodes have in common and not every node has, the narrowest first."""
    found = [_places_of(node, fault) for node in nodes]
    counts = Counter(place for all_of in found for place in set(all_of))
    whole = fleet_size(fleet)
    common = [p for p, n in counts.items() if n >= MOSTLY * len(found) and fleet.sizes.get(p, 0) < max(whole, 1)]
    return ", ".join(sorted(common, key=lambda p: (fleet.sizes.get(p, 0), p))[:4])


def _would_drain(node: NodeFacts, fault: str, policy: Policy) -> bool:
    """Of what is only recorded, many at once are no news for the brain."""
    return any(
        policy.rule_for(f.fault, f.severity, node.partitions, node.profile).action.drains
        for f in node.open_findings
        if f.fault == fault
    )
