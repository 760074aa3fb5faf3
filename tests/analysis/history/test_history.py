"""Histories from files and from the controller's own store."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sql

from nodetriage.analysis import tables
from nodetriage.analysis.history import history, outages
from nodetriage.analysis.history.exposure import Window
from nodetriage.analysis.history.history import Sources
from nodetriage.analysis.imports.event_table import read_store
from nodetriage.analysis.tables import EVENTS, OUTAGES, TableError
from nodetriage.controller.store import schema
from nodetriage.v1 import health_pb2 as pb

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT = datetime(2025, 6, 2, 10, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with the controller's own tables: an Xid 79 that is raised, an agent's start, a drained incident."""
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    engine = sql.create_engine(url)
    schema.metadata.create_all(engine)
    at_us = int(AT.timestamp() * 1_000_000)
    message = pb.Event(fault="gpu_off_bus", evidence={"xid": pb.Value(whole=79)}).SerializeToString()
    common = {"node": "n1", "boot_id": "b", "received_us": at_us, "component": "gpu-1"}
    events = [
        {"seq": 1, "at_us": at_us, "kind": 6, "check_name": "", "fault": "", "severity": 0, "message": b""},
        {"seq": 2, "at_us": at_us, "kind": 1, "check_name": "gpu_xid", "fault": "gpu_off_bus", "severity": 4,
         "message": message},
        {"seq": 3, "at_us": at_us + 60_000_000, "kind": 4, "check_name": "ib_link", "fault": "ib_link_down",
         "severity": 4, "message": b"not a message"},
    ]  # fmt: skip
    with engine.begin() as connection:
        connection.execute(
            schema.nodes.insert(),
            {"node": "n1", "boot_id": "b", "agent_version": "0", "profile": "", "first_seen_us": 0, "last_seen_us": 0},
        )
        connection.execute(schema.events.insert(), [common | e for e in events])
        connection.execute(
            schema.incidents.insert(),
            [
                {"incident": i, "node": "n1", "fault": "gpu_off_bus", "component": "", "severity": 4, "causes": "",
                 "opened_us": at_us, "drained_us": drained}
                for i, drained in (("i1", at_us), ("i2", None))
            ],
        )  # fmt: skip
    engine.dispose()
    return url


def test_the_controllers_store_gives_events_with_their_xid(store: str) -> None:
    events, outages = read_store(store, NOW)
    assert events.frame.select("node", "at", "kind", "check", "fault", "severity", "xid").rows() == [
        ("n1", AT, "raised", "gpu_xid", "gpu_off_bus", 4, 79),
        ("n1", AT + timedelta(minutes=1), "cleared", "ib_link", "ib_link_down", 4, None),
    ]
    assert events.problems.left_out == {"about the agent itself, not the node": 1}
    assert outages.frame.rows() == [("n1", AT, "drained", "gpu_off_bus")]


def test_an_incident_that_was_closed_returned_its_node(store: str) -> None:
    """Eight incidents of six hours on four nodes within 45 days."""
    engine = sql.create_engine(store)
    hour_us = 3_600_000_000
    at_us = int(AT.timestamp() * 1_000_000)
    rows = [
        {"incident": f"c{i}", "node": f"m{i % 4}", "fault": "gpu_off_bus", "component": "", "severity": 4, "causes": "",
         "opened_us": at_us, "drained_us": at_us + i * 100 * hour_us, "closed_us": at_us + (i * 100 + 6) * hour_us}
        for i in range(8)
    ]  # fmt: skip
    with engine.begin() as connection:
        connection.execute(schema.incidents.delete())
        connection.execute(schema.incidents.insert(), rows)
    engine.dispose()
    _, read = read_store(store, NOW)
    days = 8 * 0.25 / (4 * (1 - 0.994))
    found = outages.of_records(read.frame, Window(AT, AT + timedelta(days=days)))
    assert (found.height, found["repaired"].all()) == (8, True)
    assert outages.downtime(found).mean_days == pytest.approx(0.25)
    assert outages.availability(found, 4, 0, days) == pytest.approx(0.994)


def test_only_events_of_the_period_are_fetched(store: str) -> None:
    events, _ = read_store(store, NOW, since=AT + timedelta(seconds=30))
    assert events.frame["fault"].to_list() == ["ib_link_down"]
    events, _ = read_store(store, NOW, until=AT + timedelta(seconds=30))
    assert events.frame["fault"].to_list() == ["gpu_off_bus"]


def test_a_store_without_tables_is_refused_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no database yet"):
        read_store(f"sqlite:///{tmp_path / 'none.sqlite'}", NOW)
    assert not (tmp_path / "none.sqlite").exists()
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(TableError, match="no events"):
        read_store(f"sqlite:///{tmp_path / 'empty.sqlite'}", NOW)


@pytest.mark.parametrize("url", ["store.sqlite", "oracle-of-delphi://x/y", "postgresql+psycopg://u:secret@[::1]:1/x"])
def test_a_url_that_leads_nowhere_is_one_line_without_its_password(url: str) -> None:
    with pytest.raises(TableError) as raised:
        read_store(url, NOW)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_files_and_a_store_are_put_together_in_order_of_time(store: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(
        "node,at,kind,check,component,fault,severity\nn2,2025-06-02T10:00:30,raised,mounts,/x,mount_stale,4\n"
    )
    outages = tmp_path / "outages.csv"
    outages.write_text("node,at,kind,cause\nn2,2025-06-03T00:00:00,repaired,dimm\nn2,soon,ticket,\n")
    read = history.load(Sources(events=path, outages=outages, database=store), NOW)
    assert read.events["fault"].to_list() == ["gpu_off_bus", "mount_stale", "ib_link_down"]
    assert read.outages["kind"].to_list() == ["drained", "repaired"]
    assert read.problems[str(outages)].left_out == {"no time": 1}


def test_the_period_takes_what_ran_in_it_as_it_stood_at_its_end(made: Any) -> None:
    jobs = made.table(
        [
            made.job(0, 60, "COMPLETED", job_id="before"),
            made.job(0, 120, "COMPLETED", job_id="in"),
            made.job(0, 180, "NODE_FAIL", job_id="at the end", exit_code="1:0"),
            made.job(0, None, "RUNNING", job_id="running"),
            made.job(500, None, "RUNNING", job_id="later"),
        ],
        tables.JOBS,
    )
    events = made.table([made.event("n0", m, "x") for m in (-2000, 0, 150, 400)], EVENTS)
    found = history.of(jobs, events, NOW, made.at(100), made.at(180))
    assert found.jobs.select("job_id", "state", "end_at", "exit_code").rows() == [
        ("in", "COMPLETED", made.at(120), None),
        ("at the end", "RUNNING", None, None),
        ("running", "RUNNING", None, None),
    ]
    assert found.events["at"].to_list() == [made.at(0), made.at(150)]
    assert found.jobs["run"].to_list() == [0, 1, 2]


def test_an_empty_history_is_a_moment(made: Any) -> None:
    found = made.past([])
    assert (found.days, found.jobs.height, found.since) == (0, 0, NOW.replace(year=2025, month=9))


def test_a_running_job_runs_until_the_end_of_the_period(made: Any) -> None:
    past = made.past([made.job(0, None, "RUNNING"), made.job(0, 90, "COMPLETED", job_id="2")])
    runs = history.started(past).filter(job_id="1")
    assert runs["run_s"].item() == pytest.approx(90 * 60, abs=1)


def test_pending_jobs_have_not_run(made: Any) -> None:
    past = made.past([made.job(0, None, "PENDING", start_at=None)])
    assert history.started(past).height == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", "what is this\n"), ("b.json", "{}"), ("c.parquet", "PAR1PAR1"), ("d.csv", "a,b\n1,2\n")],
)
def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TableError, match=name):
        history.load(Sources(jobs=tmp_path / name), NOW)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="none: No such file"):
        history.load(Sources(jobs=tmp_path / "none"), NOW)
    with pytest.raises(TableError, match="none: No such file"):
        history.load(Sources(events=tmp_path / "none"), NOW)


def test_outages_from_parquet_are_read(tmp_path: Path) -> None:
    rows = [{"node": "n1", "at": AT, "kind": "ticket", "cause": ""}]
    pl.DataFrame(rows, schema=dict(OUTAGES), orient="row").write_parquet(tmp_path / "outages.parquet")
    assert history.load(Sources(outages=tmp_path / "outages.parquet"), NOW).outages.height == 1
