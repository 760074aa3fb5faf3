"""The verbs `incidents` and `incident ID`: events, actions and repairs that belong together, in order."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli.ask import ask
from nodetriage.controller.cli.options import add_options, connection, positive, print_result
from nodetriage.service import moment

if TYPE_CHECKING:
    from nodetriage.checks.model import Severity
    from nodetriage.controller.store.incidents import Incident

_COLUMNS = ("id", "began", "node", "severity", "what", "ended")


def add(verbs: Any) -> None:
    text = "faults, fleet incidents and planned stops, grouped by node, device and time"
    incidents = verbs.add_parser("incidents", help=text, description=text)
    moment.add_since(incidents, "that began after", "7d")
    incidents.add_argument("--node", default="", help="of this node")
    incidents.add_argument(
        "--severity",
        choices=("info", "warning", "major", "critical"),
        default="major",
        help="of this severity or worse (major)",
    )
    incidents.add_argument("--limit", type=positive, default=50, metavar="N", help="the last N (50)")
    add_options(incidents)
    incidents.set_defaults(verb=_incidents)
    text = "one incident from its first symptom to its end, and how long each stage took; or end a fleet incident"
    one = verbs.add_parser("incident", help=text, description=text)
    one.add_argument("id", metavar="ID", nargs="+", help="an incident; `close ID` ends an incident of the fleet")
    one.add_argument("--reason", default="", metavar="WHY", help="what you found, for close")
    one.add_argument("--socket", type=Path, metavar="FILE", help="the controller's operator.sock, for close")
    moment.add_since(one, "search from", "90d")
    add_options(one)
    one.set_defaults(verb=_incident)


def _incidents(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model import Severity
    from nodetriage.controller.cli import render

    least = Severity[arguments.severity.upper()]
    found = _read(arguments, arguments.node, least)[-arguments.limit :]
    shown = render.record_table(_COLUMNS, [_row(i) for i in found]) if found else "no such incidents"
    print_result(arguments, [_json(i) for i in found], shown)
    return 0


def _incident(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model.settings import ConfigError

    if len(arguments.id) == 2 and arguments.id[0] == "close":
        if not arguments.reason.strip():
            raise ConfigError("incident close: give a reason with --reason: others will read it")
        return ask(arguments, "CloseIncident", incident=arguments.id[1], reason=arguments.reason)
    if len(arguments.id) != 1:
        raise ConfigError("incident: expected ID, or close ID")
    return _story(arguments, arguments.id[0])


def _story(arguments: argparse.Namespace, wanted: str) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import incident_rows, state_store
    from nodetriage.controller.store.database import NoDatabase

    with connection(arguments) as opened:
        found = incident_rows.one(opened, wanted)
        if found is None or found.began_at < arguments.since:
            raise NoDatabase(f"{wanted}: no such incident; `nodetriagectl incidents` lists them")
        lines = incident_rows.lines(opened, found)
    story = [{"at": format.iso(state_store.to_us(at)), "what": what} for at, what in lines]
    stages = "  ".join(f"{name} {seconds:.1f} s" for name, seconds in found.stages.items() if seconds is not None)
    head = render.record_table(_COLUMNS, [_row(found)])
    clock = [{"time (UTC)": (line["at"] or "").replace("T", " ")[:23], "what": line["what"]} for line in story]
    parts = (head, "", stages, "", render.record_table(("time (UTC)", "what"), clock))
    print_result(arguments, {**_json(found), "story": story}, *parts)
    return 0


def _read(arguments: argparse.Namespace, node: str, least: "Severity") -> list["Incident"]:
    from nodetriage.controller.store import incident_rows
    from nodetriage.controller.store.database import NoDatabase

    with connection(arguments) as opened:
        try:
            return incident_rows.incidents(opened, arguments.since, node, least)
        except LookupError as error:
            raise NoDatabase(str(error)) from error


def _row(incident: "Incident") -> dict[str, str]:
    from nodetriage.controller.cli import format
    from nodetriage.controller.store import state_store

    also = [f for f in incident.faults if f != incident.fault]
    what = f"{incident.fault} {incident.component}" + (f" (and {', '.join(also)})" if also else "")
    return {
        "id": incident.id,
        "began": format.clock(state_store.to_us(incident.began_at)),
        "node": incident.node or "fleet",
        "severity": incident.severity.name.lower() if incident.kind != "planned" else "planned",
        "what": what,
        "ended": format.clock(state_store.to_us(incident.ended_at)) if incident.ended_at else "-",
    }


def _json(incident: "Incident") -> dict[str, Any]:
    from nodetriage.controller.cli import format
    from nodetriage.controller.store import state_store
    from nodetriage.controller.store.incidents import on_path_s

    return {
        "id": incident.id,
        "class": incident.kind,
        "node": incident.node,
        "fault": incident.fault,
        "component": incident.component,
        "severity": incident.severity.name.lower(),
        "faults": list(incident.faults),
        "began_at": format.iso(state_store.to_us(incident.began_at)),
        "ended_at": format.iso(state_store.to_us(incident.ended_at)) if incident.ended_at else None,
        "stages_s": dict(incident.stages),
        "on_path_s": on_path_s(incident),
        "by_hand": incident.by_hand,
        "events": [s.cursor for s in incident.symptoms],
    }
