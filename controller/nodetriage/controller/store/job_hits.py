"""The jobs on a node when it was drained, or when something grave was found there."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from nodetriage.controller.scheduler import JobView
from nodetriage.controller.store import schema
from nodetriage.controller.store.state_store import insert_into, to_us


def keep_jobs(connection: Connection, incident: str, node: str, jobs: Iterable[JobView], now: datetime) -> None:
    """What a node's jobs were when something happened: `incident`, or "event-CURSOR" for an event alone."""
    for job in jobs:
        row = {
            "incident": incident,
            "job": job.job,
            "restarts": job.restarts,
            "node": node,
            "at_us": to_us(now),
            "document": msgspec.json.encode(job),
        }
        statement = insert_into(connection, schema.job_hits).values(row)
        connection.execute(statement.on_conflict_do_nothing(index_elements=["incident", "job", "restarts"]))


def job_of(document: bytes) -> JobView:
    """A job as `job_hits` keeps it."""
    return msgspec.json.decode(document, type=JobView)
