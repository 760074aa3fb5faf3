"""The verbs that order something for nodes, from drain to maintenance, and pause."""

import argparse
from typing import Any

from nodetriage.controller.cli.ask import add_socket, ask
from nodetriage.controller.cli.options import later


def add(verbs: Any) -> None:
    drain = _verb(verbs, "drain", "drain nodes in nodetriage's name, so that undrain brings them back")
    drain.add_argument("--now", action="store_true", help="past the drain limits, the breaker and a pause")
    _reason(drain)
    drain.set_defaults(verb=lambda a: ask(a, "Drain", nodes=a.nodes, reason=a.reason, now=a.now))
    undrain = _verb(verbs, "undrain", "bring repaired nodes back that nodetriage drained")
    undrain.set_defaults(verb=lambda a: ask(a, "Undrain", "NodesRequest", nodes=a.nodes))
    release = _verb(verbs, "release", "bring nodes back from Lemon, Repair, BurnIn or Retired")
    _reason(release)
    release.set_defaults(verb=lambda a: ask(a, "Release", "NodesRequest", nodes=a.nodes, reason=a.reason))
    retire = _verb(verbs, "retire", "take nodes out of the fleet: they are neither drained nor counted any more")
    _reason(retire)
    retire.set_defaults(verb=lambda a: ask(a, "Retire", "NodesRequest", nodes=a.nodes, reason=a.reason))
    ticket = _verb(verbs, "ticket", "note the ticket of a repair, which moves drained nodes to the repair pool")
    ticket.add_argument("text", metavar="TEXT", help='the ticket, such as "RMA 4711"; "" removes it')
    ticket.set_defaults(verb=lambda a: ask(a, "SetTicket", "NodesRequest", nodes=a.nodes, reason=a.text))
    _add_accept(verbs)
    _add_lemon(verbs)
    _add_maintenance(verbs)
    _add_pause(verbs)


def _add_accept(verbs: Any) -> None:
    text = "let nodes work in spite of a fault, until it changes or happens anew"
    accept = verbs.add_parser("accept", help=text, description=text)
    accept.add_argument("fault", metavar="FAULT", help="the fault's code")
    accept.add_argument("--node", dest="nodes", required=True, metavar="NODES", help="a node set such as n[1-8]")
    _reason(accept)
    add_socket(accept)
    accept.set_defaults(verb=lambda a: ask(a, "AcceptFault", nodes=a.nodes, fault=a.fault, reason=a.reason))


def _add_lemon(verbs: Any) -> None:
    text = "mark nodes as lemons, which only an operator returns to service, or lift the mark"
    lemon = verbs.add_parser("lemon", help=text, description=text)
    lemon.add_argument("switch", choices=("set", "lift"))
    lemon.add_argument("nodes", metavar="NODES", help="a node set such as n[1-8]")
    _reason(lemon)
    add_socket(lemon)
    lemon.set_defaults(
        verb=lambda a: ask(a, "SetLemon", "LemonRequest", nodes=a.nodes, on=a.switch == "set", reason=a.reason)
    )


def _add_maintenance(verbs: Any) -> None:
    text = "begin or end maintenance of nodes: what is found meanwhile is recorded, and nothing is done about it"
    maintenance = _verb(verbs, "maintenance", text)
    maintenance.add_argument("switch", choices=("on", "off"), nargs="?", default="on")
    maintenance.add_argument("--reason", default="", metavar="WHY", help="what you do there; needed for on")
    maintenance.add_argument("--until", type=later, metavar="TIME", help=f"when it ends by itself: {_TIME} (a day)")
    maintenance.set_defaults(verb=_maintenance)


def _add_pause(verbs: Any) -> None:
    text = "stop drains and requeues until a time, or go on"
    pause = verbs.add_parser("pause", help=text, description=text)
    end = pause.add_mutually_exclusive_group(required=True)
    end.add_argument("--until", type=later, metavar="TIME", help=f"when they go on by themselves: {_TIME}")
    end.add_argument("--off", action="store_true", help="go on now")
    pause.add_argument("--reason", default="", metavar="WHY", help="others will read it; needed with --until")
    add_socket(pause)
    pause.set_defaults(verb=_pause)


_TIME = "30m, 4h, 2d from now, or a UTC date or time"


def _verb(verbs: Any, name: str, text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    verb.add_argument("nodes", metavar="NODES", help="a node set such as n[1-8],login1")
    add_socket(verb)
    return verb


def _reason(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--reason", required=True, metavar="WHY", help="others will read it")


def _maintenance(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model.settings import ConfigError

    on = arguments.switch == "on"
    if on and not arguments.reason.strip():
        raise ConfigError("maintenance on: give a reason with --reason: others will read it")
    request = {"nodes": arguments.nodes, "on": on, "reason": arguments.reason}
    return ask(arguments, "SetMaintenance", "MaintenanceRequest", **request, until_unix_us=_us(arguments.until))


def _pause(arguments: argparse.Namespace) -> int:
    return ask(arguments, "Pause", until_unix_us=_us(arguments.until), reason=arguments.reason)


def _us(at: Any) -> int:
    from nodetriage.controller.store import state_store

    return state_store.to_us(at) if at else 0
