"""One fault that begins on many nodes at once is one incident of the fleet: its cause is repaired, not each node. Pure.

Only onsets count, by the nodes' own time: a node that was out of work before, or is in repair, makes no incident and
keeps none open. An incident ends by itself, covers no onset outside its time, and operators may close it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodetriage.controller.policy.breaker import fleet_size
from nodetriage.controller.policy.drains import repair
from nodetriage.controller.policy.fleet_state import FleetIncident
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.shared_places import MOSTLY, SOFTWARE, WIDE, places, places_of, says_nothing
from nodetriage.controller.policy.state import FindingFact, FleetState, NodeFacts, NodeState, OperatorCommand
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.limits import CommonMode
from nodetriage.controller.settings.rules import Policy

MANY_PLACES = 3  # with the same fault make it one of the whole fleet
OUT = (NodeState.REPAIR, NodeState.LEMON, NodeState.RETIRED)


def covers(incident: FleetIncident, node: NodeFacts, finding: FindingFact) -> bool:
    if not finding.is_open or finding.fault != incident.fault:
        return False
    # A clock that is hours behind does not part a node from a shared cause that others report at the same time.
    began_at = finding.raised_at if incident.until is not None else max(finding.raised_at, finding.known_at)
    if began_at < incident.since:
        return False
    if incident.until is not None and finding.raised_at > incident.until:
        return False
    return incident.place in ("", *finding.places) or incident.place in places(node)


def covering(fleet: FleetState, node: NodeFacts) -> tuple[FleetIncident, ...]:
    """The fleet incidents that this node is a part of now."""
    return tuple(i for i in fleet.fleet_incidents if any(covers(i, node, f) for f in node.findings))


def told(work: UnitOfWork, name: str, fault: str, policy: Policy) -> tuple[str, ...]:
    """To be called when a node's findings changed; returns the nodes whose case is another one now."""
    rules = policy.common_mode
    shown = work.showing(fault) if fault and rules.enabled else {}
    node = work.node(name)
    if name not in shown or node is None or not _would_drain(node, fault, policy):
        return ()
    joined = _join(work, node, fault, rules)
    if joined is not None and joined.place not in work.fleet.sizes:
        return ()  # the fleet's, or of what nobody knows how many share it: nothing is wider
    if len(shown) < min(rules.shared_min_nodes, rules.least_nodes):
        return ()
    recent = _onsets(work, fault, shown[name], rules)
    known = [i for i in work.fleet.fleet_incidents if i.fault == fault]
    if name not in recent or any(i.place == "" for i in known):
        return ()
    # Nodes behind a switch that is known to be faulty say nothing about the rest of the fleet.
    apart = sum(not any(covers(i, n, f) for i in known for f in n.findings) for n in recent.values())
    if apart >= rules.fleet_limit(fleet_size(work.fleet), fault):
        return _open_at(work, fault, _narrowest(work, fault, recent, rules), recent, known, rules)
    for place in places_of(node, fault):
        if any(i.place == place for i in known) or says_nothing(work, place, rules):
            continue  # a wider place may be it
        if joined is not None and work.fleet.sizes.get(place, 0) <= work.fleet.sizes[joined.place]:
            continue  # its cause is known, and no narrower one is looked for
        within = {n: facts for n, facts in recent.items() if place in places_of(facts, fault)}
        if len(within) >= _place_limit(work.fleet, place, fault, rules):
            return _open_at(work, fault, place, within, known, rules)
    return ()


def _open_at(
    work: UnitOfWork, fault: str, place: str, nodes: dict[str, NodeFacts], known: list[FleetIncident], rules: CommonMode
) -> tuple[str, ...]:
    """Opens an incident of one place; of the whole fleet where many places have the same fault."""
    inside = [i for i in known if set(_nodes_in(work, i)) <= nodes.keys()] if place else known
    if place and len(known) - len(inside) + 1 >= MANY_PLACES:
        everywhere = _onsets(work, fault, max(work.showing(fault)[n] for n in nodes), rules)
        return _open(work, fault, "", {**everywhere, **nodes}, known, rules)
    return _open(work, fault, place, nodes, inside, rules)


def _narrowest(work: UnitOfWork, fault: str, nodes: dict[str, NodeFacts], rules: CommonMode) -> str:
    """What all of these nodes share and not the whole fleet does; "" if nothing."""
    fleet = work.fleet
    common = set.intersection(*(set(places_of(n, fault)) for n in nodes.values()))
    whole = fleet_size(fleet)
    narrow = [p for p in common if fleet.sizes.get(p, 0) < whole and not p.startswith(WIDE)]
    narrow = [p for p in narrow if not says_nothing(work, p, rules)]
    return min(narrow, key=lambda p: (fleet.sizes.get(p, 0), p), default="")


def _onsets(work: UnitOfWork, fault: str, at: datetime, rules: CommonMode) -> dict[str, NodeFacts]:
    """The nodes in work on which the fault began near `at`, and after the last incident of that fault."""
    window, ended = timedelta(seconds=rules.window_s), work.fleet.incidents_ended.get(fault)
    near = {n: t for n, t in work.showing(fault).items() if abs(t - at) <= window and (ended is None or t > ended)}
    known = {n: facts for n in near if (facts := work.node(n)) is not None}
    return {n: facts for n, facts in known.items() if _was_in_work(facts, near[n])}


def _was_in_work(node: NodeFacts, at: datetime) -> bool:
    if not repair.counts(node) or node.maintenance is not None or node.state in OUT:
        return False
    return node.drain is None or node.drain.done_at is None or node.drain.done_at >= at


def _join(work: UnitOfWork, node: NodeFacts, fault: str, rules: CommonMode) -> FleetIncident | None:
    """The node is part of an incident that is open: it goes on for another window."""
    for incident in work.fleet.fleet_incidents:
        at = [f.raised_at for f in node.findings if covers(incident, node, f)]
        if incident.fault == fault and at:
            window = timedelta(seconds=rules.window_s)
            until = incident.until and max(incident.until, max(at) + window)
            _replace(work, incident, replace(incident, joined_at=work.now, until=until))
            return incident
    return None


def tick(work: UnitOfWork, policy: Policy) -> tuple[str, ...]:
    """Ends incidents that are over; returns the nodes that are looked at one by one again."""
    rules, again, freed = policy.common_mode, timedelta(seconds=policy.drain_limits.held_notice_s), list[str]()
    for incident in work.fleet.fleet_incidents:
        nodes = _nodes_in(work, incident)
        in_work = sum(_in_work(work, n) for n in nodes)
        now = replace(incident, nodes=max(incident.nodes, len(nodes)))
        if why := _over(work, incident, in_work, rules):
            freed += nodes
            _end(work, incident, f"{why}: {incident.fault} is left on {in_work} nodes in work")
            continue
        low = incident.until is None and in_work * 2 < _limit(work.fleet, incident, rules)
        now = replace(now, below_since=(incident.below_since or work.now) if low else None)
        if work.now - (incident.told_at or work.now) >= again:
            now = replace(now, told_at=work.now)
            about = f"{incident.id}-{work.stamp}"
            text = f"still open, on {in_work} nodes in work: {said(now)}"
            work.notify(NoticeKind.FLEET_INCIDENT_OPEN, about, text, incident=incident.id)
        _replace(work, incident, now)
    return tuple(freed)


def _over(work: UnitOfWork, incident: FleetIncident, in_work: int, rules: CommonMode) -> str:
    """Why the incident is over; "" while it lasts."""
    if not rules.enabled:
        return "is over, [common_mode] is switched off"
    own = incident.until is not None
    longest_s = rules.own_longest_s if own else rules.longest_s
    if work.now - incident.opened_at >= timedelta(seconds=longest_s):
        return f"ends after {longest_s:g} s"
    if own:  # the fault of the nodes' own hardware stays; what ends is that it begins on further nodes
        quiet = work.now - (incident.joined_at or incident.opened_at) >= timedelta(seconds=rules.window_s)
        return "is over" if quiet else ""
    if in_work * 2 >= _limit(work.fleet, incident, rules) or incident.below_since is None:
        return ""
    return "is over" if work.now - incident.below_since >= timedelta(seconds=rules.end_s) else ""


def close(work: UnitOfWork, command: OperatorCommand) -> tuple[tuple[str, ...], str]:
    """An operator ends an incident. Returns the nodes that are looked at one by one again, and why not."""
    found = next((i for i in work.fleet.fleet_incidents if i.id == command.incident), None)
    if found is None:
        ids = ", ".join(i.id for i in work.fleet.fleet_incidents)
        return (), f"no fleet incident {command.incident} is open ({f'open: {ids}' if ids else 'none is open'})"
    if not command.reason.strip():
        return (), "give a reason: what did you find?"
    nodes = _nodes_in(work, found)
    _end(work, found, f"is closed by {command.actor}: {command.reason}")
    return tuple(nodes), ""


def _end(work: UnitOfWork, incident: FleetIncident, text: str) -> None:
    others = tuple(i for i in work.fleet.fleet_incidents if i.id != incident.id)
    # The newest onset that it covers, by the clock by which onsets are compared: only later ones make another incident.
    latest = max([incident.since, *work.showing(incident.fault).values()])
    ended = {**work.fleet.incidents_ended, incident.fault: latest}
    work.set_fleet(fleet_incidents=others, incidents_ended=ended)
    about = f"fleet incident {incident.id} {text}"
    work.notify(NoticeKind.FLEET_INCIDENT_ENDED, incident.id, about, incident=incident.id)
    work.ask_limits = True


def _replace(work: UnitOfWork, before: FleetIncident, after: FleetIncident) -> None:
    if before != after:
        changed = tuple(after if i.id == before.id else i for i in work.fleet.fleet_incidents)
        work.set_fleet(fleet_incidents=changed)


def _in_work(work: UnitOfWork, name: str) -> bool:
    node = work.node(name)
    return node is not None and not repair.is_out(node) and _was_in_work(node, work.now)


def _open(
    work: UnitOfWork,
    fault: str,
    place: str,
    nodes: dict[str, NodeFacts],
    narrower: list[FleetIncident],
    rules: CommonMode,
) -> tuple[str, ...]:
    """`narrower` ones of the same fault become this one, under the first one's id."""
    onsets, window = [work.showing(fault)[n] for n in nodes], timedelta(seconds=rules.window_s)
    # A shared cause lasts until it is repaired; what several narrower incidents became has one.
    lasts = rules.is_shared(fault) or place.startswith(SOFTWARE) or any(i.until is None for i in narrower)
    incident = FleetIncident(
        id=narrower[0].id if narrower else work.new_incident(),
        fault=fault,
        checks=tuple(sorted({f.check for n in nodes.values() for f in n.findings if f.is_open and f.fault == fault})),
        place=place,
        shared=_shared(work.fleet, fault, nodes.values()),
        opened_at=narrower[0].opened_at if narrower else work.now,
        nodes=len(nodes),
        since=min([min(onsets) - window, *(i.since for i in narrower)]),
        until=None if lasts else max(onsets) + window,
        joined_at=work.now,
        told_at=work.now,
    )
    others = tuple(i for i in work.fleet.fleet_incidents if i not in narrower)
    work.set_fleet(fleet_incidents=(*others, incident))
    about = f"{incident.id}-wider" if narrower else incident.id
    work.notify(NoticeKind.FLEET_INCIDENT_OPENED, about, said(incident), incident=incident.id)
    work.ask_limits = True
    return tuple(_nodes_in(work, incident))


def said(incident: FleetIncident) -> str:
    shared = f"shared: {incident.shared}" if incident.shared else "nothing known that they share"
    return f"fleet incident {incident.id}: {incident.fault} on {incident.nodes} nodes; {shared}; none is drained for it"


def _nodes_in(work: UnitOfWork, incident: FleetIncident) -> list[str]:
    began = sorted(work.showing(incident.fault).items(), key=lambda one: (one[1], one[0]))
    shown = ((name, work.node(name)) for name, _ in began)
    return [name for name, node in shown if node and any(covers(incident, node, f) for f in node.findings)]


def _place_limit(fleet: FleetState, place: str, fault: str, rules: CommonMode) -> int:
    if place in fleet.sizes:
        return rules.place_limit(fleet.sizes[place])
    # The whole fleet may run one driver or firmware, and then all of its nodes share it.
    if place.startswith(WIDE):
        return rules.fleet_limit(fleet_size(fleet), fault)
    return rules.least_nodes  # of what only the evidence names, such as a mount source, nobody knows how many share it


def _limit(fleet: FleetState, incident: FleetIncident, rules: CommonMode) -> int:
    if incident.place:
        return _place_limit(fleet, incident.place, incident.fault, rules)
    return rules.fleet_limit(fleet_size(fleet), incident.fault)


def _shared(fleet: FleetState, fault: str, nodes: Iterable[NodeFacts]) -> str:
    """What most of these nodes have in common and not every node has, the narrowest first."""
    found = [places_of(node, fault) for node in nodes]
    counts = Counter(place for all_of in found for place in set(all_of))
    whole = fleet_size(fleet)
    common = [p for p, n in counts.items() if n >= MOSTLY * len(found) and fleet.sizes.get(p, 0) < max(whole, 1)]
    return ", ".join(sorted(common, key=lambda p: (fleet.sizes.get(p, 0), p))[:4])


def _would_drain(node: NodeFacts, fault: str, policy: Policy) -> bool:
    """What is only recorded, or in shadow, makes no incident: nothing in shadow keeps a drain from being done."""
    return any(
        policy.rule_for(f.fault, f.severity, node.partitions, node.profile).action.drains
        for f in node.open_findings
        if f.fault == fault and not policy.untrusted(f.check, f.fault)
    )
