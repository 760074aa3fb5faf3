"""The verb `database`: shows the revision of the tables, upgrades them, and says what is too old to be kept."""

import argparse
import time
from pathlib import Path
from typing import Any

from nodetriage.controller.cli.options import add_json, print_result


def add(verbs: Any) -> None:
    text = "show the revision of the database's tables, or upgrade them to the one that this controller needs"
    verb = verbs.add_parser("database", help=text, description=text)
    what = verb.add_subparsers(required=True, metavar="WHAT")
    current = what.add_parser("current", help="show the revision, and the one that this controller needs")
    current.set_defaults(verb=_current)
    upgrade = what.add_parser(
        "upgrade", help="upgrade the tables to the revision that this controller needs; stop all controllers first"
    )
    upgrade.set_defaults(verb=_upgrade)
    old = what.add_parser("retention", help="show what the retention would delete now: a dry run")
    old.set_defaults(verb=_retention)
    for one in (current, upgrade, old):
        one.add_argument("--config", type=Path, metavar="FILE", help="settings (/etc/nodetriage/controller.toml)")
        add_json(one)


def _current(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.store import database, schema

    engine = database.open_database(_url(arguments), read_only=True)
    with engine.connect() as connection:
        found = database.revision(connection)
    whole = {"revision": found or None, "needed": schema.REVISION}
    print_result(arguments, whole, f"{found or 'none'} (this nodetriage needs {schema.REVISION})")
    return 0 if found == schema.REVISION else 1


def _upgrade(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.store import database, migrate

    before, after = migrate.upgrade(database.open_database(_url(arguments)))
    text = f"already at {after}" if before == after else f"upgraded from {before or 'empty'} to {after}"
    print_result(arguments, {"before": before or None, "after": after}, text)
    return 0


def _retention(arguments: argparse.Namespace) -> int:
    from nodetriage.controller import config
    from nodetriage.controller.cli import render
    from nodetriage.controller.store import database, retention, state_store

    settings = config.load(arguments.config or config.DEFAULT_CONFIG)
    with database.open_database(settings.database_url, read_only=True).connect() as connection:
        state = state_store.load(connection)
        still_open = {f.event_id for node in state.nodes.values() for f in node.open_findings}
        old = retention.limits(settings.retention, time.time_ns() // 1000, state.cursor, still_open)
        counts = retention.count(connection, old)
    rows = [{"table": name, "too_old": too_old, "rows": rows} for name, (too_old, rows) in counts.items()]
    print_result(arguments, rows, render.record_table(("table", "too_old", "rows"), rows))
    return 0


def _url(arguments: argparse.Namespace) -> str:
    from nodetriage.controller import config

    return config.load(arguments.config or config.DEFAULT_CONFIG).database_url
