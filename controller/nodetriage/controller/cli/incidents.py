"""The verbs `incidents` and `incident ID`: events, actions and repairs that belong together, in order."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli.ask import ask
from nodetriage.controller.cli.options import add_options, connection, positive, print_result
from nodetriage.service import moment

if TYPE_CHECKING:
    from nodetriage.controller.store.incidents import Incident

_COLUMNS = ("id", "began", "node", "severity", "what", "ended")


def add(verbs: Any) -> None:
    text = "what happened, grouped by node, device and time: faults, incidents of the fleet, planned stops"
    incidents = verbs.add_parser("incidents", help=text, description=text)
    moment.add_since(incidents, "that began after", "7d")
    incidents.add_argument("--node", default="", help="of this node")
    incidents.add_argument(
        "--severity", choices=("info", "warning", "major", "critical"), default="major", help="or worse (major)"
    )
    incidents.add_argument("--limit", type=positive, default=50, metavar="N", help="the last N (50)")
    add_options(incidents)
    incidents.set_defaults(verb=_incidents)
    text = "one incident, from its first sign to its end, with the time that each stage took"
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
    found = [i for i in _read(arguments, arguments.node) if i.kind != "fault" or i.severity >= least]
    found = found[-arguments.limit :]
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

    told = next((i for i in _read(arguments, "") if i.id == wanted), None)
    if told is None:
        raise NoDatabase(f"{wanted}: no such incident; `nodetriagectl incidents` lists them")
    with connection(arguments) as opened:
        lines = incident_rows.lines(opened, told)
    story = [{"at": format.iso(state_store.to_us(at)), "what": what} for at, what in lines]
    stages = "  ".join(f"{name} {seconds:.1f} s" for name, seconds in told.stages.items() if seconds is not None)
    head = render.record_table(_COLUMNS, [_row(told)])
    clock = [{"time (UTC)": (line["at"] or "").replace("T", " ")[:23], "what": line["what"]} for line in story]
    parts = (head, "", stages, "", render.record_table(("time (UTC)", "what"), clock))
    print_result(arguments, {**_json(told), "story": story}, *parts)
    return 0


def _read(arguments: argparse.Namespace, node: str) -> list["Incident"]:
    from nodetriage.controller.store import incident_rows
    from nodetriage.controller.store.database import NoDatabase

    with connection(arguments) as opened:
        try:
            return incident_rows.incidents(opened, arguments.since, node)
        except LookupError as error:
            raise NoDatabase(str(error)) from error


def _row(told: "Incident") -> dict[str, str]:
    from nodetriage.controller.cli import format
    from nodetriage.controller.store import state_store

    also = [f for f in told.faults if f != told.fault]
    what = f"{told.fault} {told.component}" + (f" (and {', '.join(also)})" if also else "")
    return {
        "id": told.id,
        "began": format.clock(state_store.to_us(told.began_at)),
        "node": told.node or "fleet",
        "severity": told.severity.name.lower() if told.kind != "planned" else "planned",
        "what": what,
        "ended": format.clock(state_store.to_us(told.ended_at)) if told.ended_at else "-",
    }


def _json(told: "Incident") -> dict[str, Any]:
    from nodetriage.controller.cli import format
    from nodetriage.controller.store import state_store
    from nodetriage.controller.store.incidents import on_path_s

    return {
        "id": told.id,
        "class": told.kind,
        "node": told.node,
        "fault": told.fault,
        "component": told.component,
        "severity": told.severity.name.lower(),
        "faults": list(told.faults),
        "began_at": format.iso(state_store.to_us(told.began_at)),
        "ended_at": format.iso(state_store.to_us(told.ended_at)) if told.ended_at else None,
        "stages_s": dict(told.stages),
        "on_path_s": on_path_s(told),
        "by_hand": told.by_hand,
        "events": [s.cursor for s in told.symptoms],
    }
