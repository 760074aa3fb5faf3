"""Brings a database from the revision that it is at to the one that this controller needs, by Alembic.

A new revision: change schema.py, then scripts/revision.py NUMBER WORDS, and read what it wrote.
"""

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, func, select, text

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.store import database, folder_lock

FOLDER = Path(__file__).resolve().parent / "migrations"


def upgrade(engine: Engine) -> tuple[str, str]:
    """(revision before, revision after); the same where there was nothing to do. "" is an empty database.

    Raises ConfigError where the tables were made by no revision or by one that is not known here, and where a
    controller leads on this PostgreSQL, or runs in the folder of this SQLite.
    """
    with _no_controller(engine), engine.connect() as connection:
        connection.detach()  # so that it is closed at the end, and the lock goes with it
        if connection.dialect.name == "postgresql" and not connection.scalar(
            select(func.pg_try_advisory_lock(database.LEADER_LOCK))
        ):
            raise ConfigError("a controller leads on this database: stop all of them first")
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET statement_timeout = 0"))  # an index of a long history takes its time
        before = database.revision(connection)
        if not before and database.has_tables(connection):
            raise ConfigError("the tables were made before revisions were counted: move that database away")
        connection.rollback()  # Alembic begins transactions of its own
        try:
            command.upgrade(configured(connection), "head")
        except CommandError as error:
            known = re.sub(r"\s+", " ", str(error))
            raise ConfigError(
                f"the tables are at revision {before}, which this nodetriage does not know ({known})"
            ) from error
        connection.commit()
        return before, database.revision(connection)


def _no_controller(engine: Engine) -> AbstractContextManager[None]:
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    return folder_lock.no_controller(Path(file).parent) if file else nullcontext()


def configured(connection: Connection) -> Config:
    """Alembic's settings, for `connection`."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
