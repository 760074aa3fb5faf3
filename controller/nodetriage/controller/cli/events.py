"""The verbs `events`, `poison` and `actions`."""

import argparse
import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli.options import add_options, connection, positive, print_result
from nodetriage.service import moment

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nodetriage.controller.store.history import EventFilter

_FOLLOW_EVERY_S = 0.5


def add(verbs: Any) -> None:
    text = "what happened, oldest first"
    events = verbs.add_parser("events", help=text, description=text)
    events.add_argument("--node", action="append", default=[], help="of this node; may be repeated")
    events.add_argument("--fault", action="append", default=[], help="of this fault code; may be repeated")
    events.add_argument(
        "--severity", choices=("info", "warning", "major", "critical"), help="of this severity or worse"
    )
    moment.add_since(events, "not older than")
    events.add_argument("--limit", type=positive, default=200, metavar="N", help="the last N (200)")
    events.add_argument(
        "--follow", action="store_true", help="wait, and print new events as they come (with --json: one object a line)"
    )
    add_options(events)
    events.set_defaults(verb=_events)
    text = "events that were acked and set aside, because they could not be stored: the last ones, and why"
    poison = verbs.add_parser("poison", help=text, description=text)
    poison.add_argument("--node", default="", help="of this node")
    poison.add_argument("--limit", type=positive, default=50, metavar="N", help="the last N (50)")
    add_options(poison)
    poison.set_defaults(verb=_poison)
    text = "what the controller decided, and with what result"
    actions = verbs.add_parser("actions", help=text, description=text)
    actions.add_argument("--node", default="", help="on this node")
    actions.add_argument("--open", action="store_true", help="only actions that are not done yet")
    actions.add_argument("--limit", type=positive, default=50, metavar="N", help="the last N (50)")
    add_options(actions)
    actions.set_defaults(verb=_actions)


def _events(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import history, state_store
    from nodetriage.controller.store.history import EventFilter

    wanted = EventFilter(
        nodes=tuple(arguments.node),
        faults=tuple(arguments.fault),
        min_severity=format.SEVERITIES.index(arguments.severity) + 1 if arguments.severity else 0,
        since_us=state_store.to_us(arguments.since) if arguments.since else None,
    )
    with connection(arguments) as opened:
        if arguments.follow:
            return _follow(opened, wanted, arguments)
        found = history.newest_events(opened, wanted, arguments.limit)
    shown = render.event_table(found) if found else "no such events"
    print_result(arguments, [format.event_json(stored) for stored in found], shown)
    return 0


def _follow(opened: "Connection", wanted: "EventFilter", arguments: argparse.Namespace) -> int:
    """Prints the last `limit` events and then new ones, until interrupted."""
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import history

    page = history.newest_events(opened, wanted, arguments.limit)
    last = history.newest_cursor(opened) if not page else page[-1].cursor
    while True:
        for stored in page:
            if arguments.json:
                sys.stdout.write(json.dumps(format.event_json(stored)) + "\n")
            else:
                render.show(render.event_line(stored))
            last = stored.cursor
        sys.stdout.flush()
        opened.rollback()  # ends the read transaction, so that the next page sees new events
        if len(page) < arguments.limit:
            time.sleep(_FOLLOW_EVERY_S)
        page = history.events_after(opened, dataclasses.replace(wanted, after=last), arguments.limit)


def _poison(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import poison

    with connection(arguments) as opened:
        found = poison.newest(opened, arguments.node, arguments.limit)
    rows = [format.poison_json(one) for one in found]
    shown = render.record_table(("received_at", "node", "seq", "size", "why"), rows) if rows else "none was set aside"
    print_result(arguments, rows, shown)
    return 0


def _actions(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.store import fleet

    with connection(arguments) as opened:
        found = fleet.newest_actions(opened, arguments.node, arguments.open, arguments.limit)
    shown = render.action_table(found) if found else "no such actions"
    print_result(arguments, [format.record_json(record) for record in found], shown)
    return 0
