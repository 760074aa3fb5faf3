"""The verbs breaker, clear, run-checks and queue; orders.py has those that order something for nodes."""

import argparse
from pathlib import Path
from typing import Any

from nodetriage.controller.cli.ask import add_socket, ask
from nodetriage.controller.cli.options import add_options, connection, print_result


def add(verbs: Any) -> None:
    _add_breaker(verbs)
    _add_agent_verbs(verbs)
    text = "drains that wait for the drain limits or the breaker, the next one first"
    queue = verbs.add_parser("queue", help=text, description=text)
    add_options(queue)
    queue.set_defaults(verb=_queue)


def _add_breaker(verbs: Any) -> None:
    text = "show, open or close the breaker, which stops drains and requeues when too much fails at once"
    breaker = verbs.add_parser("breaker", help=text, description=text)
    breaker.add_argument("what", choices=("status", "open", "close"), help="open and close need --reason")
    breaker.add_argument("--reason", default="", metavar="WHY", help="others will read it")
    breaker.add_argument("--socket", type=Path, metavar="FILE", help="the controller's operator.sock")
    add_options(breaker)
    breaker.set_defaults(verb=_breaker)


def _add_agent_verbs(verbs: Any) -> None:
    text = "end a fault of one event (an Xid, a kernel oops) that you have repaired"
    clear = verbs.add_parser("clear", help=text, description=text)
    for name in ("nodes", "check", "component", "fault"):
        clear.add_argument(name, metavar=name.upper())
    add_socket(clear)
    clear.set_defaults(verb=_clear)
    text = "run checks on a node now"
    run = verbs.add_parser("run-checks", help=text, description=text)
    run.add_argument("nodes", metavar="NODES")
    run.add_argument("checks", metavar="CHECK", nargs="*", help="only these; without one, all")
    add_socket(run)
    run.set_defaults(verb=_run_checks)


def _clear(arguments: argparse.Namespace) -> int:
    from nodetriage.v1 import health_pb2

    about = health_pb2.ClearFault(check=arguments.check, component=arguments.component, fault=arguments.fault)
    return ask(arguments, "ClearFault", nodes=arguments.nodes, fault=about)


def _run_checks(arguments: argparse.Namespace) -> int:
    from nodetriage.v1 import health_pb2

    return ask(arguments, "RunChecks", nodes=arguments.nodes, run=health_pb2.RunChecks(checks=arguments.checks))


def _breaker(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model.settings import ConfigError

    if arguments.what == "status":
        return _breaker_status(arguments)
    if not arguments.reason.strip():
        raise ConfigError(f"breaker {arguments.what}: give a reason with --reason: others will read it")
    method = "OpenBreaker" if arguments.what == "open" else "CloseBreaker"
    return ask(arguments, method, "FleetRequest", reason=arguments.reason)


def _breaker_status(arguments: argparse.Namespace) -> int:
    """0 closed, 2 open."""
    from nodetriage.controller.cli import format
    from nodetriage.controller.store import state_store

    with connection(arguments) as opened:
        state = state_store.load(opened)
    facts = state.breaker
    opened_at = format.iso(state_store.to_us(facts.opened_at)) if facts.opened_at else None
    closed_at = format.iso(state_store.to_us(facts.closed_at)) if facts.closed_at else None
    whole = {"open": facts.is_open, "since": opened_at, "why": facts.why}
    whole |= {"closed_at": closed_at, "closed_by": facts.closed_by, "closed_why": facts.closed_why}
    if facts.is_open:
        text = f"open since {opened_at}: {facts.why}"
    elif facts.closed_at:
        text = f"closed; at {closed_at} by {facts.closed_by}: {facts.closed_why}"
    else:
        text = "closed; it never opened"
    print_result(arguments, whole, text)
    return 2 if facts.is_open else 0


def _queue(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format, render
    from nodetriage.controller.policy import drain_limits
    from nodetriage.controller.store import state_store

    with connection(arguments) as opened:
        state = state_store.load(opened)
    rows = []
    for node in drain_limits.held(state):
        drain = node.drain
        assert drain is not None
        wanted_at = format.iso(state_store.to_us(drain.wanted_at))
        row = {
            "node": node.node,
            "severity": drain.severity.name.lower(),
            "fault": drain.fault,
            "component": drain.component,
        }
        rows.append({**row, "incident": drain.incident, "wanted_at": wanted_at, "why": drain.queued_reason})
    columns = ("severity", "node", "fault", "component", "why")
    print_result(arguments, rows, render.record_table(columns, rows) if rows else "no drain is queued")
    return 0
