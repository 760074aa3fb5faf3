"""What the verbs share: options, a read-only connection, and output."""

import argparse
import contextlib
import gc
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.service import moment

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nodetriage.service.table import Line, Table


def add_options(verb: argparse.ArgumentParser) -> None:
    """--config, --database and --json, for a verb that reads the history."""
    source = verb.add_mutually_exclusive_group()
    source.add_argument("--config", type=Path, metavar="FILE", help="the controller's settings, to find its database")
    source.add_argument("--database", metavar="URL", help="sqlite:///FILE or postgresql://HOST/NAME")
    add_json(verb)


def add_json(verb: argparse.ArgumentParser) -> None:
    """--json, which every verb has."""
    verb.add_argument("--json", action="store_true", help="print JSON")


@contextlib.contextmanager
def connection(arguments: argparse.Namespace) -> Iterator["Connection"]:
    """A read-only connection. Raises ConfigError, NoDatabase, SQLAlchemyError."""
    from nodetriage.controller import config
    from nodetriage.controller.store.database import NoDatabase, has_tables, open_database

    url = arguments.database or config.load(arguments.config or config.DEFAULT_CONFIG).database_url
    # What a verb reads has no cycles: the collector would look at a fleet's rows again and again and free nothing.
    gc.set_threshold(1_000_000)
    engine = open_database(url, read_only=True)
    try:
        with engine.connect() as opened:
            if not has_tables(opened):
                raise NoDatabase(f"{engine.url.render_as_string()}: no tables yet; has a controller run with it?")
            yield opened
    finally:
        engine.dispose()


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def later(text: str) -> datetime:
    """A moment that lies ahead, in UTC, for argparse: 30m, 4h, 2d from now, or a UTC date or time."""
    now = datetime.now(UTC)
    try:
        at = moment.parse(text, now)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected 30m, 4h, 2d, or a UTC date or time; got {text!r}") from None
    return now + (now - at) if text[-1:] in "smhd" else at


def print_result(arguments: argparse.Namespace, value: Any, *parts: "Table | Line | str") -> None:
    """The value where --json was given, else the parts."""
    from nodetriage.service import table

    if arguments.json:
        print_json(value)
    else:
        table.write(sys.stdout, *parts)


def print_json(value: Any) -> None:
    """Prints ASCII: JSON escapes all else that a node sent."""
    # Not json.dump: it is ten times slower, because it writes each word by itself.
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None) + "\n")
