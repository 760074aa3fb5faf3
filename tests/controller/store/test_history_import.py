"""The analysis reads events out of the controller's store, whichever database that is."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import create_engine

from nodetriage.analysis.imports.event_table import read_store
from nodetriage.controller.store import schema

AT = datetime(2025, 6, 2, 10, 0, tzinfo=UTC)


def test_events_and_drains_are_read_from_every_database(database_url: str) -> None:
    engine = create_engine(database_url)
    schema.metadata.create_all(engine)
    at_us = int(AT.timestamp() * 1_000_000)
    node = {"node": "n1", "boot_id": "b", "agent_version": "0", "profile": "", "first_seen_us": 0, "last_seen_us": 0}
    event = {"node": "n1", "boot_id": "b", "received_us": at_us, "kind": 1, "check_name": "mounts", "component": "/x"}
    with engine.begin() as connection:
        connection.execute(schema.nodes.insert(), node)
        for seq in range(3):
            fault = {"seq": seq, "at_us": at_us + seq, "fault": "mount_stale", "severity": 4, "message": b""}
            connection.execute(schema.events.insert(), event | fault)
        incident = {
            "incident": "i",
            "node": "n1",
            "fault": "mount_stale",
            "component": "/x",
            "severity": 4,
            "causes": "",
        }
        connection.execute(schema.incidents.insert(), incident | {"opened_us": at_us, "drained_us": at_us})
        ordered = incident | {"incident": "j", "fault": "operator"}
        connection.execute(schema.incidents.insert(), ordered | {"opened_us": at_us, "drained_us": at_us})
        order = {"at_us": at_us + 1, "actor": "olga", "verb": "ticket", "node": "n[1-2]", "answer": ""}
        connection.execute(schema.operator_log.insert(), order | {"reason": "RMA 1", "done": 1})
        connection.execute(schema.operator_log.insert(), order | {"reason": "refused", "done": 0})
        stop = {"node": "n3", "since_us": at_us + 2, "actor": "olga", "reason": "new cable", "source": "operator"}
        connection.execute(schema.maintenance.insert(), stop)
    engine.dispose()
    events, outages = read_store(database_url, AT + timedelta(days=1))
    assert events.frame["at"].to_list() == [AT + timedelta(microseconds=i) for i in range(3)]
    assert outages.frame.select("node", "kind", "cause").rows() == [
        ("n1", "drained", "mount_stale"),
        ("n1", "ticket", "RMA 1"),
        ("n2", "ticket", "RMA 1"),
        ("n3", "planned", "new cable"),
    ]
