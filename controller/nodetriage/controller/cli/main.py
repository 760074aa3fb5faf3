"""The command `nodetriagectl`. Each verb imports what it needs when it runs."""

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from nodetriage.service.command_line import BAD_CONFIGURATION, UNKNOWN, Parser
from nodetriage.service.printable import printable
from nodetriage.service.version import VERSION

# Each module has `add(subparsers)`, which adds verbs with `set_defaults(verb=...)` returning the exit code.
OWN = (
    "nodetriage.controller.cli.daemon",
    "nodetriage.controller.cli.nodes",
    "nodetriage.controller.cli.events",
    "nodetriage.controller.cli.incidents",
    "nodetriage.controller.cli.operator",
    "nodetriage.controller.cli.orders",
    "nodetriage.controller.cli.policy",
    "nodetriage.controller.cli.pki",
    "nodetriage.controller.cli.database",
    "nodetriage.controller.cli.config",
)
ANALYSIS = "nodetriage.analysis.cli.main"
ANALYSIS_VERBS = ("report", "model", "simulate")
ANALYSIS_NEEDS = ("nodetriage.analysis", "polars", "scipy")  # the package nodetriage-analysis brings them


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb. 0 ok, 3 unknown (no database yet, controller away, no permission), 78 bad configuration."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsed = _parser(arguments).parse_args(arguments)
    from sqlalchemy.exc import SQLAlchemyError

    from nodetriage.checks.model.settings import ConfigError
    from nodetriage.controller.store.database import NoDatabase, StoreError, reason_of

    try:
        code: int = parsed.verb(parsed)
        sys.stdout.flush()
    except ConfigError as error:
        denied = isinstance(error.__cause__, PermissionError)
        return _say(str(error), UNKNOWN if denied else BAD_CONFIGURATION)
    except PermissionError as error:
        return _say(f"{error.filename}: permission denied; run it as a user who may read this (root may)", UNKNOWN)
    except (NoDatabase, StoreError) as error:
        return _say(str(error), UNKNOWN)
    except SQLAlchemyError as error:
        return _say(f"database: {reason_of(error)}", UNKNOWN)
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNKNOWN
    except KeyboardInterrupt:
        return 130
    return code


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"nodetriagectl: {printable(text)}\n")
    return code


def _parser(arguments: Sequence[str]) -> Parser:
    parser = Parser(prog="nodetriagectl", description="Shows the fleet's health, and runs the controller.")
    parser.add_argument("--version", action="version", version=f"nodetriagectl {VERSION}")
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=Parser)
    for module in OWN:
        import_module(module).add(verbs)
    # The analysis loads only for a verb that is not one of the controller's: `nodes` and `events` stay quick.
    if not arguments or arguments[0] not in verbs.choices:
        _add_analysis(verbs)
    return parser


def _add_analysis(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Where the analysis is not installed, its verbs are not in the help, and say which package brings them."""
    if all(importlib.util.find_spec(name) for name in ANALYSIS_NEEDS):
        import_module(ANALYSIS).add(verbs)
        return
    for name in ANALYSIS_VERBS:
        absent = verbs.add_parser(name, add_help=False, prefix_chars="\0")  # takes any options, to answer the same
        absent.add_argument("words", nargs="*")
        absent.set_defaults(verb=_not_installed, name=name)


def _not_installed(arguments: argparse.Namespace) -> int:
    text = f"{arguments.name} is not installed on this machine: the package nodetriage-analysis brings it"
    return _say(text, BAD_CONFIGURATION)
