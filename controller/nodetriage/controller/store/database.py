"""Opens the database: SQLite in one file by default, PostgreSQL by URL."""

import re
import sqlite3
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.store import schema
from nodetriage.service.private import NotPrivate, read_private

LEADER_LOCK = 0x6E6F6465_74726961  # "nodetria": the advisory lock of PostgreSQL that the leading controller holds


LEADER = "nodetriage leader"  # application_name of the sessions that write: the next leader ends those of the last one
# So that both ends soon notice that the other's machine or the link is gone.
KEEPALIVES = {"keepalives_idle": 3, "keepalives_interval": 1, "keepalives_count": 3, "tcp_user_timeout": 5000}
_SERVER_KEEPALIVES = (
    "-c tcp_keepalives_idle=3 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3 -c tcp_user_timeout=5000"
)
# A lock that someone else holds, a query that goes wrong and a controller that stands still end a statement, and
# not the service: the caller has the error and tries again.
WRITER = (
    f"{_SERVER_KEEPALIVES} -c statement_timeout=30000 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=5000"
)
READER = f"{_SERVER_KEEPALIVES} -c default_transaction_read_only=on -c lock_timeout=5000"


class NoDatabase(Exception):
    """There is nothing to read yet; the text says where it was expected."""


class WrongRevision(ConfigError):
    """The tables are of another revision; the text says what to run."""


class StoreError(Exception):
    """Nothing was written; the text is the database's reason. The caller may try again."""


def sqlite_url(state_dir: Path) -> str:
    """The history's URL when no database is configured."""
    return f"sqlite:///{state_dir.absolute() / 'history.sqlite'}"


def has_password(url: str) -> bool:
    """Whether a database URL names a password; False for what is no URL."""
    try:
        return make_url(url).password is not None
    except (ArgumentError, ValueError):
        return False


def with_password(url: str, file: Path) -> str:
    """The URL with the file's only line as password. Raises ConfigError."""
    try:
        password = read_private(file).decode().rstrip("\r\n")
        return make_url(url).set(password=password).render_as_string(hide_password=False)
    except OSError as error:
        raise ConfigError(f"controller.database_password_file: {file}: {error.strerror}") from error
    except NotPrivate as error:
        raise ConfigError(f"controller.database_password_file: {error}") from error
    except ValueError as error:
        raise ConfigError(f"database: expected postgresql://HOST/NAME, and a password in UTF-8 in {file}") from error


def without_password(url: str) -> str:
    """The URL as it may be shown: `***` in place of a password. What is no URL comes back as it is."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return re.sub(r"://[^@/]*@", "://***@", url)


def open_database(url: str, *, read_only: bool = False) -> Engine:
    """An engine for `url`. It connects later, but a SQLite file that is opened to read must exist.

    Raises ConfigError where the URL cannot be used, NoDatabase where `read_only` finds no file.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise ConfigError(
            f"database: expected sqlite:///FILE or postgresql://HOST/NAME, got {without_password(url)!r}"
        ) from error
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return _open_sqlite(parsed, read_only)
    if kind == "postgresql":
        limits = {"connect_timeout": 10, **KEEPALIVES, "options": READER if read_only else WRITER}
        name = "nodetriagectl" if read_only else LEADER
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=not read_only,
            connect_args={**limits, "application_name": name},
        )
    raise ConfigError(
        "database: expected sqlite:///FILE or postgresql://HOST/NAME, got "
        f"{parsed.render_as_string(hide_password=True)!r}"
    )


def _open_sqlite(url: URL, read_only: bool) -> Engine:
    path = Path(url.database or "")
    if read_only and not path.exists():
        raise NoDatabase(
            f"{path}: no database yet: expected one that a controller made; has one run with this state_dir?"
        )
    if read_only:
        url = url.set(database=f"file:{path.absolute()}", query={"mode": "ro", "uri": "true"})
    engine = create_engine(url)
    event.listen(engine, "connect", _tune_reader if read_only else _tune_writer)
    return engine


def _tune_reader(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
    connection.execute("PRAGMA busy_timeout = 5000")


def _tune_writer(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
    # FULL: in WAL mode each commit is on the disk before it returns, and an ack means just that.
    for pragma in ("busy_timeout = 5000", "journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def create_tables(engine: Engine) -> None:
    """Creates the tables in an empty database; leaves one of this revision as it is.

    Raises WrongRevision where the database is older or newer, SQLAlchemyError where it cannot be reached or written.
    """
    with engine.begin() as connection:
        if check_revision(connection):
            return
        schema.metadata.create_all(connection)
        # Quicker than the revisions one after the other, and a test shows that the result is the same.
        schema.alembic_version.create(connection, checkfirst=True)
        connection.execute(schema.alembic_version.insert().values(version_num=schema.REVISION))


def check_revision(connection: Connection) -> bool:
    """True where the tables are those of this revision, False where there are none. Raises WrongRevision."""
    found = revision(connection)
    if not found and not has_tables(connection):
        return False
    if found != schema.REVISION:
        raise WrongRevision(_not_ours(connection.engine, found))
    return True


def revision(connection: Connection) -> str:
    """The tables' revision; "" where there are none, or no revision made them."""
    if not inspect(connection).has_table(schema.alembic_version.name):
        return ""
    return str(connection.scalar(select(schema.alembic_version.c.version_num)) or "")


def _not_ours(engine: Engine, found: str) -> str:
    where = engine.url.render_as_string(hide_password=True)
    is_at = f"at revision {found}" if found else "at no revision"
    return (
        f"{where}: the tables are {is_at}, this controller needs {schema.REVISION}: run `nodetriagectl database "
        "upgrade` where they are older; where they are newer, this nodetriage is too old for them"
    )


def has_tables(connection: Connection) -> bool:
    """Whether a controller has ever opened this database."""
    return inspect(connection).has_table(schema.events.name)


def reason_of(error: SQLAlchemyError) -> str:
    """The database's message on one line, without the statement and its values."""
    text = str(getattr(error, "orig", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
