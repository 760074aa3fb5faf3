"""The verb `controller`."""

import argparse
import os
from pathlib import Path
from typing import Any


def add(verbs: Any) -> None:
    text = "run the controller until it is told to stop"
    verb = verbs.add_parser("controller", help=text, description=text)
    verb.add_argument("--config", type=Path, metavar="FILE", help="settings (/etc/nodetriage/controller.toml)")
    verb.set_defaults(verb=_run)


def _run(arguments: argparse.Namespace) -> int:
    from nodetriage.controller import config
    from nodetriage.controller.rpc.handshakes import TRACER

    path = arguments.config or config.DEFAULT_CONFIG
    if config.load(path).identity.kind != "none":
        os.environ.update(TRACER)  # before the first import of grpc, which reads it once
    from nodetriage.controller.daemon import run

    return run(path)
