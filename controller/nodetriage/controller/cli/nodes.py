"""The verbs `nodes`, `status` and `node NAME`."""

import argparse
import fnmatch
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli.options import add_options, connection, positive, print_result

if TYPE_CHECKING:
    from nodetriage.controller.store.node_views import NodeView

_SEVERITIES = ("info", "warning", "major", "critical")
_PRESENCES = ("heard", "silent", "never", "refused", "asleep", "retired", "decommissioned")
_STATES = ("Unknown", "BurnIn", "Healthy", "Suspect", "Drained", "Repair", "Lemon", "Retired")
_MOST_NAMED = 5_000  # names in one question to the database
_CLEAR = "\x1b[H\x1b[2J"  # the only control characters that a verb writes: our own


def add(verbs: Any) -> None:
    text = "all nodes: our state, whether the agent reports, Slurm's state, open findings"
    nodes = verbs.add_parser("nodes", help=text, description=text)
    nodes.add_argument("nodes", nargs="*", metavar="NODES", help="only these, as n[1-8],login1")
    nodes.add_argument("--state", choices=_STATES, action="append", help="only those in this state; may be repeated")
    nodes.add_argument("--agent", choices=_PRESENCES, action="append", help="only those whose agent is so; likewise")
    nodes.add_argument("--fault", metavar="PATTERN", default="", help="only those with such a finding, as gpu_*")
    nodes.add_argument("--severity", choices=_SEVERITIES, help="only those with a finding of this severity or worse")
    nodes.add_argument("--slurm", metavar="WORD", default="", help="only those with this word in Slurm's state: down")
    nodes.add_argument("--sort", choices=tuple(_ORDERS), default="node", help="the order (node)")
    nodes.add_argument("--watch", type=positive, nargs="?", const=2, metavar="SECONDS", help="again every 2 seconds")
    add_options(nodes)
    nodes.set_defaults(verb=_nodes)
    text = "does a controller run, its mode, breaker and limits, and how many nodes report"
    status = verbs.add_parser("status", help=text, description=text)
    add_options(status)
    status.set_defaults(verb=_status)
    text = "one node: state, open findings, checks, actions"
    node = verbs.add_parser("node", help=text, description=text)
    node.add_argument("name", metavar="NAME")
    add_options(node)
    node.set_defaults(verb=_node)


def _worst(view: "NodeView") -> int:
    return max((f.severity for f in view.findings), default=0)


def _seen_us(view: "NodeView") -> int:
    return view.row.last_seen_us if view.row is not None else 0


_ORDERS: dict[str, Callable[["NodeView"], Any]] = {
    "node": lambda view: 0,  # they come by name
    "state": lambda view: view.state,
    "agent": lambda view: (view.presence, _seen_us(view)),
    "severity": lambda view: -_worst(view),
    "seen": _seen_us,
}


def _nodes(arguments: argparse.Namespace) -> int:
    import sys

    if arguments.watch is None:
        return _show_nodes(arguments)
    while True:
        if sys.stdout.isatty() and not arguments.json:
            sys.stdout.write(_CLEAR)
        _show_nodes(arguments)
        sys.stdout.flush()
        time.sleep(arguments.watch)


def _show_nodes(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, head, render
    from nodetriage.controller.store import known_nodes, node_views

    now_us, named = time.time_ns() // 1000, frozenset(_named(arguments.nodes))
    with connection(arguments) as opened:
        status = known_nodes.load_status(opened)
        some = sorted(named) if len(named) <= _MOST_NAMED else ()
        views = node_views.node_views(opened, now_us, some, evidence=arguments.json)
    views = [v for v in views if not named or v.node in named]
    views = sorted((v for v in views if _is_wanted(v, arguments)), key=_ORDERS[arguments.sort])
    if arguments.json:
        print_result(arguments, [format.node_json(view, now_us) for view in views])
        return 0
    shown = render.node_table(views, now_us) if views else "no such nodes"
    print_result(arguments, None, *head.lines(status, now_us), "", shown)
    return 0


def _named(sets: list[str]) -> list[str]:
    from nodetriage.checks.model.settings import ConfigError
    from nodetriage.controller.slurm.node_list import expand

    found: list[str] = []
    for text in sets:
        if not (names := expand(text)):
            raise ConfigError(f"nodes: expected a node set as n[1-8],login1, got {text[:80]!r}")
        found += names
    return found


def _is_wanted(view: "NodeView", wanted: argparse.Namespace) -> bool:
    least = _SEVERITIES.index(wanted.severity) + 1 if wanted.severity else 0
    return (
        (not wanted.state or view.state in wanted.state)
        and (not wanted.agent or view.presence in wanted.agent)
        and (not wanted.fault or any(fnmatch.fnmatch(f.fault, wanted.fault) for f in view.findings))
        and _worst(view) >= least
        and (not wanted.slurm or (view.known is not None and wanted.slurm.lower() in view.known.slurm.split("+")))
    )


def _status(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import head
    from nodetriage.controller.store import known_nodes

    now_us = time.time_ns() // 1000
    with connection(arguments) as opened:
        status = known_nodes.load_status(opened)
    print_result(arguments, head.as_json(status, now_us), *head.lines(status, now_us))
    return 0


def _node(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, head, render
    from nodetriage.controller.store import fleet, history, known_nodes, node_views
    from nodetriage.controller.store.database import NoDatabase
    from nodetriage.service.table import Line

    name, now_us = arguments.name, time.time_ns() // 1000
    with connection(arguments) as opened:
        status = known_nodes.load_status(opened)
        views = node_views.node_views(opened, now_us, [name])
        outcomes = history.check_outcomes(opened, [name])
        actions = fleet.newest_actions(opened, name, only_open=False, limit=20)
        transitions = fleet.newest_transitions(opened, name, limit=20)
    if not views:
        raise NoDatabase(
            f"{name}: neither an agent nor the scheduler names such a node; `nodetriagectl nodes` lists the nodes"
        )
    (view,) = views
    checks = fleet.check_views(view.row, outcomes) if view.row is not None else []
    whole = {
        **format.node_json(view, now_us),
        "checks": [format.check_json(check, now_us) for check in checks],
        "actions": [format.record_json(a) for a in actions],
        "transitions": [format.record_json(t) for t in transitions],
    }
    parts: list[Any] = [*head.lines(status, now_us)[:1], "", render.node_table(views, now_us)]
    for title, table in (
        ("Open findings", render.finding_table(view.findings)),
        ("Checks", render.check_table(checks, now_us)),
        ("Actions", render.action_table(actions)),
        ("States", render.transition_table(transitions)),
    ):
        parts += ["", Line(title, "bold"), table if table.rows else "none"]
    print_result(arguments, whole, *parts)
    return 0
