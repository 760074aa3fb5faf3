"""The verbs `nodes` and `node NAME`."""

import argparse
import time
from typing import Any

from nodetriage.controller.cli.options import add_options, connection, print_result


def add(verbs: Any) -> None:
    text = "all nodes: state, when the agent last spoke, open findings"
    nodes = verbs.add_parser("nodes", help=text, description=text)
    add_options(nodes)
    nodes.set_defaults(verb=_nodes)
    text = "one node: state, open findings, checks, actions"
    node = verbs.add_parser("node", help=text, description=text)
    node.add_argument("name", metavar="NAME")
    add_options(node)
    node.set_defaults(verb=_node)


def _nodes(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import fleet

    with connection(arguments) as opened:
        views = fleet.node_views(opened)
    now_us = time.time_ns() // 1000
    shown = render.node_table(views, now_us) if views else "no agent has connected yet"
    print_result(arguments, [format.node_json(view, now_us) for view in views], shown)
    return 0


def _node(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import fleet, history
    from nodetriage.controller.store.database import NoDatabase
    from nodetriage.service.table import Line

    name = arguments.name
    with connection(arguments) as opened:
        views = fleet.node_views(opened, [name])
        outcomes = history.check_outcomes(opened, [name])
        actions = fleet.newest_actions(opened, name, only_open=False, limit=20)
        transitions = fleet.newest_transitions(opened, name, limit=20)
    if not views:
        raise NoDatabase(
            f"{name}: no agent of a node of this name ever connected; `nodetriagectl nodes` lists the nodes"
        )
    now_us = time.time_ns() // 1000
    checks = fleet.check_views(views[0].row, outcomes)
    whole = {
        **format.node_json(views[0], now_us),
        "checks": [format.check_json(check, now_us) for check in checks],
        "actions": [format.record_json(a) for a in actions],
        "transitions": [format.record_json(t) for t in transitions],
    }
    parts: list[Any] = [render.node_table(views, now_us)]
    for title, table in (
        ("Open findings", render.finding_table(views[0].findings)),
        ("Checks", render.check_table(checks, now_us)),
        ("Actions", render.action_table(actions)),
        ("States", render.transition_table(transitions)),
    ):
        parts += ["", Line(title, "bold"), table if table.rows else "none"]
    print_result(arguments, whole, *parts)
    return 0
