"""How the reading verbs reach the history: their common options, and a connection that can only read."""

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_options(verb: argparse.ArgumentParser) -> None:
    """--config, --database and --json, as every reading verb has them."""
    source = verb.add_mutually_exclusive_group()
    source.add_argument("--config", type=Path, metavar="FILE", help="the controller's settings, to find its database")
    source.add_argument("--database", metavar="URL", help="sqlite:///FILE or postgresql://HOST/NAME")
    verb.add_argument("--json", action="store_true", help="print JSON")


@contextlib.contextmanager
def connection(arguments: argparse.Namespace) -> Iterator["Connection"]:
    """A read-only connection. Raises ConfigError, NoDatabase, or what SQLAlchemy says of a database away."""
    from nodetriage.controller import config
    from nodetriage.controller.store.database import NoDatabase, has_tables, open_database

    url = arguments.database or config.load(arguments.config or config.DEFAULT_CONFIG).database_url
    engine = open_database(url, read_only=True)
    try:
        with engine.connect() as opened:
            if not has_tables(opened):
                raise NoDatabase(f"{engine.url.render_as_string()}: no tables yet; has a controller run with it?")
            yield opened
    finally:
        engine.dispose()


def ago_us(text: str) -> int:
    """Unix microseconds of "30m", "12h", "7d" ago, for argparse."""
    if not (match := re.fullmatch(r"(\d{1,6})([smhd])", text)):
        raise argparse.ArgumentTypeError(f"expected a time as 30m, 12h or 7d, got {text!r}")
    return (time.time_ns() // 1000) - int(match[1]) * _UNITS_S[match[2]] * 1_000_000


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2 if sys.stdout.isatty() else None)
    sys.stdout.write("\n")
