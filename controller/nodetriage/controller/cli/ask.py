"""How the verbs that change something reach the controller: its operator socket, and who asks."""

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any

from nodetriage.controller.cli.options import add_json, print_result

REFUSED = 1


def add_socket(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config", type=Path, metavar="FILE", help="the controller's settings, to find its socket")
    verb.add_argument("--socket", type=Path, metavar="FILE", help="its operator.sock")
    add_json(verb)


def ask(arguments: argparse.Namespace, method: str, message: str = "", **request: Any) -> int:
    """0 done, 1 refused. `message` is the request's type, where it is not the method's own.

    Raises NoDatabase where no controller answers.
    """
    from nodetriage.controller import config
    from nodetriage.controller.rpc import operator
    from nodetriage.controller.store.database import NoDatabase
    from nodetriage.service import table
    from nodetriage.v1 import health_pb2

    path = arguments.socket or config.load(arguments.config or config.DEFAULT_CONFIG).run_dir / operator.SOCKET
    kind: Any = getattr(health_pb2, message or f"{method}Request")
    try:
        reply = operator.ask(path, method, kind(actor=actor(), **request))
    except ConnectionError as error:
        raise NoDatabase(str(error)) from error
    if arguments.json or reply.done:
        each = [{"node": n.node, "done": n.done, "message": n.message} for n in reply.nodes]
        whole = {"done": reply.done, "message": reply.message, "nodes": each}
        print_result(arguments, whole, reply.message or "done")
    else:
        table.write(sys.stderr, reply.message or "refused without a reason")
    return 0 if reply.done else REFUSED


def actor() -> Any:
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
