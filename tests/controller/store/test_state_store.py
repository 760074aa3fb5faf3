"""The policy's state and actions outlive the process: on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import checked
import pytest
from sqlalchemy import Engine, select

from nodetriage.checks.model import Severity
from nodetriage.controller.engine import inputs
from nodetriage.controller.policy import transition
from nodetriage.controller.policy.state import (
    Action,
    ActionDone,
    ActionKind,
    ActionOutcome,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    SchedulerSeen,
    Tick,
)
from nodetriage.controller.scheduler import JobView, NodeView
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import action_queue, job_hits, schema, state_store
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.v1 import health_pb2 as pb

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
JOB = JobView("11", "RUNNING", True, True, 2, "ann", "main", "normal", "n1", 1, 8, NOW, None, NOW)
CRITICAL = NodeEvent(
    7, "n1", "b", 1, NOW, EventKind.RAISED, "gpu_xid", "GPU-1", "gpu_off_bus", Severity.CRITICAL, "h100"
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(database_url)
    create_tables(opened)
    yield opened
    opened.dispose()


def take(engine: Engine, state: FleetState, event: Event, at: datetime = NOW) -> FleetState:
    step = checked.step(state, event, at, Policy(mode=Mode.ENFORCE))
    with engine.begin() as connection:
        if isinstance(event, ActionDone):
            action_queue.finish(connection, event, at)
        state_store.save(connection, state, step, at)
    return step.state


def due(engine: Engine, at: datetime = NOW) -> list[action_queue.Intent]:
    with engine.connect() as connection:
        return action_queue.due(connection, at)


def loaded(engine: Engine) -> FleetState:
    with engine.connect() as connection:
        return state_store.load(connection)


def test_an_empty_database_is_an_empty_memory(engine: Engine) -> None:
    assert loaded(engine) == FleetState()


def test_after_each_step_the_database_remembers_exactly_the_state(engine: Engine) -> None:
    view = NodeView("n1", "mixed", partitions=("main", "debug"))
    state = take(engine, FleetState(), SchedulerSeen(NOW, {"n1": view}))
    state = take(engine, state, CRITICAL)
    assert loaded(engine) == state
    drain = due(engine)[0].action
    state = take(engine, state, ActionDone(drain, ActionOutcome.DONE, "ours", (JOB,)))
    assert loaded(engine) == state
    assert state.jobs
    requeue = due(engine)[0].action
    assert requeue == Action(
        "requeue-11-2-261130-1",
        ActionKind.REQUEUE,
        "n1",
        "261130-1",
        "gpu_off_bus",
        "GPU-1",
        Severity.CRITICAL,
        "11",
        2,
    )
    state = take(engine, state, Tick(), NOW + timedelta(days=2))
    assert not state.jobs
    assert loaded(engine) == state


def test_transitions_incidents_and_jobs_are_kept_as_history(engine: Engine) -> None:
    state = take(engine, FleetState(), CRITICAL)
    take(engine, state, ActionDone(due(engine)[0].action, ActionOutcome.DONE, "ours", (JOB,)))
    with engine.connect() as connection:
        moved = [(t.before, t.after, t.at) for t in state_store.transitions_of(connection, ["n1"])]
        incident = connection.execute(select(schema.incidents)).one()
        hit = connection.execute(select(schema.job_hits)).one()
    assert moved == [(None, "Healthy", NOW), ("Healthy", "Suspect", NOW), ("Suspect", "Drained", NOW)]
    assert (incident.incident, incident.causes, incident.closed_us) == ("261130-1", "gpu_off_bus", None)
    assert incident.drained_us == state_store.to_us(NOW)
    assert job_hits.job_of(hit.document) == JOB


def test_a_step_that_is_not_committed_left_nothing(engine: Engine) -> None:
    step = checked.step(FleetState(), CRITICAL, NOW, Policy(mode=Mode.ENFORCE))
    with engine.connect() as connection:
        state_store.save(connection, FleetState(), step, NOW)
        connection.rollback()
    assert (loaded(engine), due(engine)) == (FleetState(), [])


def test_an_action_is_in_doubt_once_begun_and_gone_once_done(engine: Engine) -> None:
    state = take(engine, FleetState(), CRITICAL)
    (first,) = due(engine)
    assert (first.attempts, first.in_doubt) == (0, False)
    with engine.begin() as connection:
        action_queue.start(connection, first.action, NOW)
    (begun,) = due(engine)
    assert (begun.attempts, begun.in_doubt) == (1, True)
    take(engine, state, ActionDone(first.action, ActionOutcome.DONE))
    assert due(engine) == []


def test_an_action_that_failed_waits_and_keeps_what_was_said(engine: Engine) -> None:
    take(engine, FleetState(), CRITICAL)
    (first,) = due(engine)
    with engine.begin() as connection:
        action_queue.start(connection, first.action, NOW)
        action_queue.retry(connection, first.action, "slurmctld is down", NOW + timedelta(seconds=4))
    assert due(engine, NOW + timedelta(seconds=3)) == []
    (again,) = due(engine, NOW + timedelta(seconds=4))
    assert (again.attempts, again.in_doubt) == (1, False)
    with engine.connect() as connection:
        assert connection.execute(select(schema.actions.c.detail)).scalar() == "slurmctld is down"


def test_deciding_the_same_deed_again_does_not_do_it_again(engine: Engine) -> None:
    step = checked.step(FleetState(), CRITICAL, NOW, Policy(mode=Mode.ENFORCE))
    take(engine, FleetState(), CRITICAL)
    done = due(engine)[0].action
    with engine.begin() as connection:
        action_queue.finish(connection, ActionDone(done, ActionOutcome.DONE), NOW)
        state_store.save(connection, FleetState(), step, NOW)
    assert due(engine) == []


def test_drains_come_before_requeues_and_the_worst_before_the_rest(engine: Engine) -> None:
    asked = [
        Action("r", ActionKind.REQUEUE, "n1", severity=Severity.CRITICAL),
        Action("major", ActionKind.DRAIN, "n2", severity=Severity.MAJOR),
        Action("critical", ActionKind.DRAIN, "n3", severity=Severity.CRITICAL),
        Action("s", ActionKind.SHADOW, "n3", severity=Severity.CRITICAL),
    ]
    with engine.begin() as connection:
        state_store.save(connection, FleetState(), transition.Step(FleetState(), tuple(asked)), NOW)
    assert [i.action.id for i in due(engine)] == ["critical", "major", "r"]


def test_events_are_read_in_order_with_what_the_node_said_of_itself(engine: Engine) -> None:
    node = {"node": "n1", "boot_id": "new", "agent_version": "1", "profile": "h100"}
    row = {"node": "n1", "check_name": "gpu_xid", "component": "p", "fault": "gpu_off_bus", "message": b""}
    row |= {"at_us": 5, "received_us": 6, "kind": pb.EVENT_KIND_RAISED}
    with engine.begin() as connection:
        connection.execute(schema.nodes.insert().values(**node, first_seen_us=1, last_seen_us=1))
        for boot, seq, severity in (("old", 9, 4), ("new", 1, 4), ("new", 2, 77)):
            connection.execute(schema.events.insert().values(**row, boot_id=boot, seq=seq, severity=severity))
        first, *rest = inputs.events_after(connection, 0, 10)
        assert [e.seq for e in inputs.events_after(connection, first.id, 1)] == [1]
    assert (first.present, first.boot_id, first.profile, first.kind) == (False, "old", "h100", EventKind.RAISED)
    assert [(e.present, e.severity) for e in rest] == [(True, Severity.CRITICAL), (True, Severity.INFO)]


@pytest.mark.parametrize("at", [NOW, state_store.EPOCH, datetime(2100, 1, 1, tzinfo=UTC)])
def test_times_come_back_to_the_microsecond(at: datetime) -> None:
    assert state_store.from_us(state_store.to_us(at)) == at
