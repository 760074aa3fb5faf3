"""Incidents read from the history: queries over a connection, values out. incidents.py says what belongs together."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, select

from nodetriage.checks.model import Severity
from nodetriage.checks.model.taxonomy import taxonomy
from nodetriage.controller.policy.state import ActionKind
from nodetriage.controller.store import history, job_hits, schema, state_store
from nodetriage.controller.store.history import EventFilter, StoredEvent
from nodetriage.controller.store.incidents import (
    Drain,
    Incident,
    IncidentAction,
    Symptom,
    device_names,
    group,
    incident,
)
from nodetriage.controller.store.mappers import EVENT_KINDS
from nodetriage.controller.store.state_store import from_us, to_us

MOST_EVENTS = 200_000
LOOK_BACK = timedelta(days=7)  # a drain may wait so long for the limits after its first symptom


def incidents(
    connection: Connection, since: datetime, node: str = "", least: Severity = Severity.INFO
) -> list[Incident]:
    """All of this severity or worse that began since then, oldest first; of one node where it is named."""
    names: Sequence[str] = (node,) if node else ()
    if least >= Severity.MAJOR and not node:
        names = _with_grave_events(connection, since, least)
    symptoms = _signs(connection, since, names) if names or least < Severity.MAJOR else []
    nodes = sorted({s.node for s in symptoms})
    drains, actions = _by_node(_drains(connection, since, node)), _by_node(_actions(connection, since, node))
    moved: dict[str, list[Any]] = {}
    for transition in state_store.transitions_of(connection, nodes if len(nodes) < 500 else ()):
        moved.setdefault(transition.node, []).append(transition)
    known = taxonomy()
    priority = {s.fault: (entry.symptom, entry.priority) for s in symptoms if (entry := known.of(s.fault))}
    found = []
    for signs_of in group(symptoms):
        name = signs_of[0].node
        mine = [t for t in moved.get(name, ()) if t.at >= signs_of[0].at - timedelta(minutes=1)]
        found.append(incident(signs_of, drains.get(name, ()), actions.get(name, ()), mine, priority))
    found += [_of_fleet(d) for d in drains.get("", ())]
    found += _planned(connection, since, node)
    found = [i for i in found if i.kind != "fault" or i.severity >= least]
    return sorted(found, key=lambda i: (i.began_at, i.node, i.id))


def one(connection: Connection, wanted: str) -> Incident | None:
    """The incident of this id; reads of its node alone, from shortly before it began."""
    if (place := _place_of(connection, wanted)) is None:
        return None
    node, at_us = place
    if not node:
        fleet = _drains(connection, from_us(at_us), "")
        return next((_of_fleet(d) for d in fleet if d.incident == wanted), None)
    since = from_us(max(0, at_us)) - LOOK_BACK
    return next((i for i in incidents(connection, since, node) if i.id == wanted), None)


def _place_of(connection: Connection, wanted: str) -> tuple[str, int] | None:
    """The node of an incident's id, and when it began by then; None where there is none."""
    e, i = schema.events.c, schema.incidents.c
    number, _, name = wanted[1:].partition("-")
    if wanted.startswith("m") and number.isdigit() and name:
        return name, int(number)
    if wanted.startswith("e") and wanted[1:].isdigit():
        row = connection.execute(select(e.node, e.at_us).where(e.id == int(wanted[1:]))).one_or_none()
    else:
        row = connection.execute(select(i.node, i.opened_us).where(i.incident == wanted)).one_or_none()
    return None if row is None else (str(row[0]), int(row[1]))


def _with_grave_events(connection: Connection, since: datetime, least: Severity) -> list[str]:
    """The nodes that have one: only these may have an incident that is so severe."""
    e = schema.events.c
    grave = (e.at_us >= to_us(since)) & (e.severity >= int(least)) & schema.GRAVE
    return list(connection.execute(select(e.node).where(grave).distinct().order_by(e.node)).scalars())


def lines(connection: Connection, shown: Incident) -> list[tuple[datetime, str]]:
    """The story of one incident, in order: what was seen, decided, done, and what became of the node and its jobs."""
    found = [
        (s.at, f"{s.kind}: {s.fault} on {s.component} ({s.check}, {s.severity.name.lower()})") for s in shown.symptoms
    ]
    found += [(s.known_at, "known to the controller") for s in shown.symptoms[:1]]
    for action in _actions(connection, shown.began_at - timedelta(minutes=1), shown.node, shown.id):
        words = " ".join(filter(None, (str(action.kind), action.job and f"job {action.job}", action.text)))
        found.append((action.decided_at, f"decided: {words}"))
        if action.finished_at and action.kind not in (state_store.NOTICE, ActionKind.SHADOW):
            found.append((action.finished_at, f"{action.outcome or action.status}: {words}"))
    hits = select(schema.job_hits).where(schema.job_hits.c.incident == shown.id)
    for row in connection.execute(hits):
        job = job_hits.job_of(row.document)
        about = (
            f"job {job.job} of {job.user}: {job.state}, {job.node_count} nodes, {job.gpus} GPUs, QOS {job.qos or '-'}"
        )
        found.append((from_us(row.at_us), f"{about}, restarts {job.restarts}"))
    until = (shown.ended_at or datetime.max.replace(tzinfo=shown.began_at.tzinfo)) + timedelta(0)
    if shown.kind == "fault":
        for t in state_store.transitions_of(connection, [shown.node]):
            if shown.began_at - timedelta(minutes=1) <= t.at <= until:
                found.append((t.at, f"{t.before or 'new'} -> {t.after} ({t.cause}; {t.actor})"))
    return sorted(found, key=lambda line: line[0])


def _signs(connection: Connection, since: datetime, nodes: Sequence[str]) -> list[Symptom]:
    wanted = EventFilter(nodes=tuple(nodes), since_us=to_us(since))
    found: list[Symptom] = []
    while page := history.events_after(connection, wanted, 5000):
        found += [_sign(stored) for stored in page if stored.event.kind in EVENT_KINDS and stored.event.fault]
        if len(found) > MOST_EVENTS:
            raise LookupError(f"more than {MOST_EVENTS} events: look at a shorter time, or at one node")
        wanted = EventFilter(nodes=wanted.nodes, since_us=wanted.since_us, after=page[-1].cursor)
    return found


def _sign(stored: StoredEvent) -> Symptom:
    event = stored.event
    texts = [value.text for value in event.evidence.values() if value.text]
    return Symptom(
        cursor=stored.cursor,
        node=stored.node,
        at=from_us(event.at_unix_us),
        known_at=from_us(stored.received_us),
        kind=EVENT_KINDS[event.kind],
        check=event.check,
        component=event.component,
        fault=event.fault,
        severity=Severity(min(max(event.severity, Severity.INFO), Severity.CRITICAL)),
        names=device_names(event.component, texts),
    )


def _drains(connection: Connection, since: datetime, node: str) -> list[Drain]:
    i = schema.incidents.c
    query = select(schema.incidents).where(i.opened_us >= to_us(since)).order_by(i.opened_us)
    rows = connection.execute(query.where(i.node == node) if node else query)
    return [
        Drain(
            row.incident,
            row.node,
            tuple(row.causes.split(",")),
            row.component,
            from_us(row.opened_us),
            _time(row.drained_us),
            _time(row.closed_us),
        )
        for row in rows
    ]


def _actions(connection: Connection, since: datetime, node: str, of: str = "") -> list[IncidentAction]:
    a = schema.actions.c
    query = select(schema.actions).where(a.decided_us >= to_us(since)).order_by(a.decided_us, a.id)
    if of:
        query = query.where(a.incident == of)
    elif node:
        query = query.where(a.node == node)
    return [_deed(row) for row in connection.execute(query)]


def _deed(row: Row[Any]) -> IncidentAction:
    times = (from_us(row.decided_us), _time(row.finished_us))
    text = row.text or row.detail
    return IncidentAction(row.id, row.kind, row.node, row.incident, row.job, row.status, row.outcome, text, *times)


def _of_fleet(drain: Drain) -> Incident:
    return Incident(
        drain.incident,
        "fleet",
        "",
        drain.causes[0],
        drain.component,
        Severity.CRITICAL,
        drain.causes,
        drain.opened_at,
        drain.closed_at,
    )


def _planned(connection: Connection, since: datetime, node: str) -> list[Incident]:
    m = schema.maintenance.c
    query = select(schema.maintenance).where(m.since_us >= to_us(since))
    rows = connection.execute(query.where(m.node == node) if node else query)
    return [
        Incident(
            f"m{row.since_us}-{row.node}",
            "planned",
            row.node,
            "maintenance",
            f"{row.actor}: {row.reason}",
            Severity.INFO,
            (),
            from_us(row.since_us),
            _time(row.until_us),
            by_hand=True,
        )
        for row in rows
    ]


def _by_node(found: Sequence[Any]) -> dict[str, list[Any]]:
    by_node: dict[str, list[Any]] = {}
    for one in found:
        by_node.setdefault(one.node, []).append(one)
    return by_node


def _time(at_us: int | None) -> datetime | None:
    return None if at_us is None else from_us(at_us)
