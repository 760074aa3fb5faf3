"""The verb `controller`."""

import argparse
from pathlib import Path
from typing import Any


def add(verbs: Any) -> None:
    text = "run the controller until SIGTERM or SIGINT"
    verb = verbs.add_parser("controller", help=text, description=text)
    verb.add_argument("--config", type=Path, metavar="FILE", help="settings (/etc/nodetriage/controller.toml)")
    verb.set_defaults(verb=_run)


def _run(arguments: argparse.Namespace) -> int:
    from nodetriage.controller import config
    from nodetriage.controller.daemon import run

    return run(arguments.config or config.DEFAULT_CONFIG)
