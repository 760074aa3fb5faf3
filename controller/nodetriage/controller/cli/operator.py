"""The verbs by which an operator changes something: undrain, maintenance, breaker, clear, run-checks; and `queue`."""

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any

from nodetriage.controller.cli.options import add_json, add_options, connection, print_result

REFUSED = 1


def add(verbs: Any) -> None:
    _add_undrain(verbs)
    _add_maintenance(verbs)
    _add_breaker(verbs)
    _add_agent_verbs(verbs)
    text = "drains that wait for the drain limits or the breaker, as they will be let through"
    queue = verbs.add_parser("queue", help=text, description=text)
    add_options(queue)
    queue.set_defaults(verb=_queue)


def _add_undrain(verbs: Any) -> None:
    text = "bring a repaired node back that nodetriage drained"
    undrain = verbs.add_parser("undrain", help=text, description=text)
    undrain.add_argument("node", metavar="NODE")
    _add_socket(undrain)
    undrain.set_defaults(verb=lambda a: _ask(a, "Undrain", node=a.node))


def _add_maintenance(verbs: Any) -> None:
    text = "begin or end maintenance of a node: what is found meanwhile is recorded, and nothing is done about it"
    maintenance = verbs.add_parser("maintenance", help=text, description=text)
    maintenance.add_argument("node", metavar="NODE")
    maintenance.add_argument("switch", choices=("on", "off"))
    maintenance.add_argument("--reason", default="", metavar="WHY", help="what is being done; needed for on")
    _add_socket(maintenance)
    maintenance.set_defaults(verb=_maintenance)


def _add_breaker(verbs: Any) -> None:
    text = "the breaker that stops drains and requeues when too much fails at once"
    breaker = verbs.add_parser("breaker", help=text, description=text)
    breaker.add_argument("what", choices=("status", "close"), help="close needs --reason")
    breaker.add_argument("--reason", default="", metavar="WHY", help="what was looked at before closing it")
    breaker.add_argument("--socket", type=Path, metavar="FILE", help="the controller's operator.sock, for close")
    add_options(breaker)
    breaker.set_defaults(verb=_breaker)


def _add_agent_verbs(verbs: Any) -> None:
    text = "tell a node's agent that an event-like fault has been dealt with"
    clear = verbs.add_parser("clear", help=text, description=text)
    for name in ("node", "check", "component", "fault"):
        clear.add_argument(name, metavar=name.upper())
    _add_socket(clear)
    clear.set_defaults(verb=_clear)
    text = "have a node's agent run its checks now"
    run = verbs.add_parser("run-checks", help=text, description=text)
    run.add_argument("node", metavar="NODE")
    run.add_argument("checks", metavar="CHECK", nargs="*", help="these alone; all where none is named")
    _add_socket(run)
    run.set_defaults(verb=_run_checks)


def _add_socket(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config", type=Path, metavar="FILE", help="the controller's settings, to find its socket")
    verb.add_argument("--socket", type=Path, metavar="FILE", help="its operator.sock")
    add_json(verb)


def _maintenance(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model.settings import ConfigError

    on = arguments.switch == "on"
    if on and not arguments.reason.strip():
        raise ConfigError("maintenance on: --reason is needed: it is what others will read")
    return _ask(arguments, "SetMaintenance", node=arguments.node, on=on, reason=arguments.reason)


def _clear(arguments: argparse.Namespace) -> int:
    from nodetriage.v1 import health_pb2

    about = health_pb2.ClearFault(check=arguments.check, component=arguments.component, fault=arguments.fault)
    return _ask(arguments, "ClearFault", node=arguments.node, fault=about)


def _run_checks(arguments: argparse.Namespace) -> int:
    from nodetriage.v1 import health_pb2

    return _ask(arguments, "RunChecks", node=arguments.node, run=health_pb2.RunChecks(checks=arguments.checks))


def _breaker(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model.settings import ConfigError

    if arguments.what == "status":
        return _breaker_status(arguments)
    if not arguments.reason.strip():
        raise ConfigError("breaker close: --reason is needed: what was looked at?")
    return _ask(arguments, "CloseBreaker", reason=arguments.reason)


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
        rows.append({**row, "incident": drain.incident, "wanted_at": wanted_at, "why": drain.held_why})
    columns = ("severity", "node", "fault", "component", "why")
    print_result(arguments, rows, render.record_table(columns, rows) if rows else "no drain is queued")
    return 0


def _ask(arguments: argparse.Namespace, method: str, **request: Any) -> int:
    """0 done, 1 refused. Raises NoDatabase where no controller answers."""
    from nodetriage.controller import config
    from nodetriage.controller.rpc import operator
    from nodetriage.controller.store.database import NoDatabase
    from nodetriage.service import table
    from nodetriage.v1 import health_pb2

    path = arguments.socket or config.load(arguments.config or config.DEFAULT_CONFIG).run_dir / operator.SOCKET
    kinds = {"SetMaintenance": health_pb2.MaintenanceRequest, "CloseBreaker": health_pb2.CloseBreakerRequest}
    kind: Any = kinds.get(method) or getattr(health_pb2, f"{method}Request")
    try:
        reply = operator.ask(path, method, kind(actor=_actor(), **request))
    except ConnectionError as error:
        raise NoDatabase(str(error)) from error
    if arguments.json or reply.done:
        print_result(arguments, {"done": reply.done, "message": reply.message}, reply.message or "done")
    else:
        table.write(sys.stderr, reply.message or "refused without a reason")
    return 0 if reply.done else REFUSED


def _actor() -> Any:
    """Who types: the login behind sudo, not root."""
    from nodetriage.v1 import health_pb2

    name, uid = os.environ.get("SUDO_USER"), os.environ.get("SUDO_UID", "")
    if name and uid.isdecimal():
        return health_pb2.Actor(name=name, uid=int(uid))
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return health_pb2.Actor(name=name, uid=os.getuid())
