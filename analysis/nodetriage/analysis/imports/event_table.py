"""Events and outages from the controller's store, read through SQLAlchemy, and from CSV or Parquet files."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import sqlalchemy as sql
from google.protobuf.message import DecodeError

from nodetriage.analysis.imports import slurm_events
from nodetriage.analysis.imports.csv_tables import read_csv
from nodetriage.analysis.tables import (
    EVENTS,
    OUTAGES,
    Imported,
    Problems,
    Schema,
    TableError,
    empty,
    read_parquet,
    sound_events,
    sound_outages,
)
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.slurm import node_list
from nodetriage.controller.store.database import NoDatabase, open_database, without_password
from nodetriage.controller.store.schema import events, incidents, maintenance, operator_log
from nodetriage.v1 import health_pb2

# nodetriage.v1.EventKind, the kinds that concern a node's health.
_KINDS = {1: "raised", 2: "changed", 3: "repeated", 4: "cleared", 5: "outcome"}
_BATCH_ROWS = 100_000


def read_events(path: Path, now: datetime) -> Imported:
    """Events from a Parquet or CSV file with the columns of EVENTS. Raises TableError where it is neither."""
    return _read_file(path, EVENTS, lambda frame: sound_events(frame, now))


def read_outages(path: Path, now: datetime, zone: str = "UTC") -> Imported:
    """Drains, tickets and repairs from Parquet, CSV or `sacctmgr -P show event` (in `zone`). Raises TableError."""
    try:
        with path.open("rb") as source:
            by_slurm = slurm_events.is_events(source.read(4096))
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    if by_slurm:
        return slurm_events.read_slurm_events(path, now, zone)
    return _read_file(path, OUTAGES, lambda frame: sound_outages(frame, now))


def read_store(
    url: str, now: datetime, since: datetime | None = None, until: datetime | None = None
) -> tuple[Imported, Imported]:
    """Events and outages from the controller's store at an SQLAlchemy `url` (sqlite:///PATH, postgresql+psycopg://...).

    Raises TableError where there is no such database or it has no table of events. Nothing is written.
    """
    engine = _open(url)
    try:
        with engine.connect() as connection:
            return _events_from(connection, now, since, until), _outages_from(connection, now)
    except sql.exc.SQLAlchemyError as error:
        raise TableError(f"{without_password(url)}: no events: {_first_line(error)}") from error
    finally:
        engine.dispose()


def _read_file(path: Path, schema: Schema, sound: Callable[[pl.DataFrame], Imported]) -> Imported:
    try:
        with path.open("rb") as source:
            is_parquet = source.read(4) == b"PAR1"
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    try:
        read = Imported(read_parquet(path)) if is_parquet else read_csv(path, schema)
        rows = sound(read.frame)
    except TableError as error:
        raise TableError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    return Imported(rows.frame, read.problems + rows.problems)


def _outages_from(connection: sql.Connection, now: datetime) -> Imported:
    """Drains, tickets and planned stops. A store from before there were incidents has none."""
    if not sql.inspect(connection).has_table("incidents"):
        return Imported(empty(OUTAGES))
    rows = [*_drains(connection), *_tickets(connection), *_planned(connection)]
    schema = {"node": pl.String, "cause": pl.String, "at": pl.Int64, "kind": pl.String}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.from_epoch("at", time_unit="us").dt.replace_time_zone("UTC")
    )
    return sound_outages(frame, now)


def _drains(connection: sql.Connection) -> Iterator[tuple[str, str, int, str]]:
    """The drain of each incident, and the return to service where the incident was closed."""
    # What an operator ordered, and what a study of lemons led to, is no sign of a lemon; the fleet's have no node.
    c = incidents.c
    drained = c.drained_us.is_not(None) & c.fault.not_in(("operator", "lemon")) & (c.node != "")
    query = sql.select(c.node, c.fault, c.drained_us, c.closed_us).where(drained)
    for node, fault, at_us, closed_us in connection.execute(query):
        yield (node, fault, at_us, "drained")
        if closed_us is not None:
            yield (node, fault, max(closed_us, at_us), "resumed")


def _tickets(connection: sql.Connection) -> Iterator[tuple[str, str, int, str]]:
    """What operators noted by `nodetriagectl ticket`, a row for each node of the set."""
    c = operator_log.c
    query = sql.select(c.node, c.reason, c.at_us).where(c.verb == "ticket", c.done == 1, c.reason != "")
    for nodes, text, at_us in connection.execute(query):
        for node in node_list.expand(nodes) or ():
            yield (node, text, at_us, "ticket")


def _planned(connection: sql.Connection) -> Iterator[tuple[str, str, int, str]]:
    """Maintenance, by operators and by reservations."""
    c = maintenance.c
    for node, reason, at_us in connection.execute(sql.select(c.node, c.reason, c.since_us)):
        yield (node, reason, at_us, "planned")


def _open(url: str) -> sql.Engine:
    try:
        return open_database(url, read_only=True)
    except (ConfigError, NoDatabase) as error:
        raise TableError(f"--database: {error}") from error


def _events_from(connection: sql.Connection, now: datetime, since: datetime | None, until: datetime | None) -> Imported:
    c = events.c
    wanted = sql.select(c.id, c.node, c.at_us, c.kind, c.check_name, c.component, c.fault, c.severity)
    if since is not None:
        wanted = wanted.where(c.at_us >= _unix_us(since))
    if until is not None:
        wanted = wanted.where(c.at_us < _unix_us(until))
    rows = _fetched(connection, wanted)
    other = rows.filter(~pl.col("kind").is_in(list(_KINDS)))
    health = rows.filter(pl.col("kind").is_in(list(_KINDS))).with_columns(
        pl.from_epoch("at_us", time_unit="us").dt.replace_time_zone("UTC").alias("at"),
        pl.col("kind").replace_strict(_KINDS, return_dtype=pl.String),
        pl.col("check_name").alias("check"),
        pl.when(pl.col("severity") > 0).then("severity").alias("severity"),
    )
    codes = _xids(connection, wanted)
    health = health.join(codes, on="id", how="left", maintain_order="left").select(*EVENTS)
    sound = sound_events(health, now)
    left_out = {"about the agent itself, not the node": other.height} if other.height else {}
    return Imported(sound.frame, sound.problems + Problems(left_out=left_out))


_ROW = {
    "id": pl.Int64,
    "node": pl.String,
    "at_us": pl.Int64,
    "kind": pl.Int64,
    "check_name": pl.String,
    "component": pl.String,
    "fault": pl.String,
    "severity": pl.Int64,
}


def _fetched(connection: sql.Connection, wanted: sql.Select[tuple[object, ...]]) -> pl.DataFrame:
    # Batches: a year's events never become Python objects all at once.
    result = connection.execution_options(stream_results=True).execute(wanted.order_by(events.c.id))
    frames = [pl.DataFrame(schema=_ROW)]
    while batch := result.fetchmany(_BATCH_ROWS):
        frames.append(pl.DataFrame([tuple(row) for row in batch], schema=_ROW, orient="row"))
    return pl.concat(frames)


def _xids(connection: sql.Connection, wanted: sql.Select[tuple[object, ...]]) -> pl.DataFrame:
    """The Xid code of each event that carries one in its evidence."""
    c = events.c
    found = []
    messages = wanted.with_only_columns(c.id, c.message).where(c.check_name.like("%xid%"))
    for number, message in connection.execution_options(stream_results=True).execute(messages):
        try:
            evidence = health_pb2.Event.FromString(message).evidence
        except DecodeError:
            continue
        if "xid" in evidence:
            found.append((number, evidence["xid"].whole))
    return pl.DataFrame(found, schema={"id": pl.Int64, "xid": pl.Int32}, orient="row")


def _unix_us(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
