"""Events that belong together are one incident, with one primary cause and the times of its stages."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import checked
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reported import all_ok
from sqlalchemy import Engine

from nodetriage.checks.model import Severity
from nodetriage.controller.cli.main import main
from nodetriage.controller.engine.inputs import events_after
from nodetriage.controller.policy.state import (
    ActionDone,
    ActionKind,
    ActionOutcome,
    Event,
    EventKind,
    FleetState,
    OperatorCommand,
)
from nodetriage.controller.scheduler import JobView
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import action_queue, incident_rows, mappers, schema, state_store
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.controller.store.incidents import GAP, Symptom, device_names, group, on_path_s, primary
from nodetriage.v1 import health_pb2 as pb

T = datetime(2026, 11, 30, 12, tzinfo=UTC)
PRIORITY = {"gpu_off_bus": (False, 10), "pcie_fatal": (False, 20), "bmc_critical_interrupt": (True, 5)}
GPU = "GPU-11111111-2222"


def symptom(fault: str, at_s: float, *, node: str = "n1", kind: EventKind = EventKind.RAISED, **more: Any) -> Symptom:
    given_ = {"check": "c", "component": GPU, "severity": Severity.CRITICAL, "names": frozenset({GPU}), **more}
    at = T + timedelta(seconds=at_s)
    return Symptom(round(at_s * 10), node, at, at + timedelta(seconds=1), kind, fault=fault, **given_)


def faults_of(symptoms: list[Symptom]) -> list[list[str]]:
    return [[s.fault for s in one] for one in group(symptoms)]


def test_an_aer_error_an_xid_and_a_line_of_the_bmc_are_one_incident_and_the_gpu_is_its_cause() -> None:
    address = device_names("0000:1b:00.0", ())
    symptoms = [
        symptom("pcie_fatal", 0, component="0000:1b:00.0", names=address),
        symptom("gpu_off_bus", 2, names=device_names(GPU, ["PCI 00000000:1B:00.0 fell off"])),
        symptom("bmc_critical_interrupt", 40, component="Slot 3", names=frozenset({"Slot 3"}), severity=Severity.MAJOR),
    ]

    (one,) = group(symptoms)

    assert {s.fault for s in one} == {"pcie_fatal", "gpu_off_bus", "bmc_critical_interrupt"}
    assert primary(one, PRIORITY).fault == "gpu_off_bus"


def test_a_warning_or_a_symptom_is_the_cause_only_where_there_is_nothing_else() -> None:
    mere = symptom("bmc_critical_interrupt", 0)
    warning = symptom("gpu_off_bus", 1, severity=Severity.WARNING)

    assert primary([mere, warning], PRIORITY) is mere
    assert primary([warning], PRIORITY) is warning


def test_two_devices_two_nodes_and_two_times_are_incidents_of_their_own() -> None:
    other = {"component": "GPU-99999999", "names": frozenset({"GPU-99999999"})}
    assert len(group([symptom("gpu_off_bus", 0), symptom("gpu_off_bus", 1, **other)])) == 2
    assert len(group([symptom("gpu_off_bus", 0), symptom("gpu_off_bus", 1, node="n2")])) == 2
    assert len(group([symptom("gpu_off_bus", 0), symptom("pcie_fatal", GAP.total_seconds() + 1)])) == 2


def test_an_end_belongs_to_its_finding_however_late_and_one_without_a_beginning_is_no_incident() -> None:
    late = symptom("gpu_off_bus", 86400, kind=EventKind.CLEARED)

    assert faults_of([symptom("gpu_off_bus", 0), late]) == [["gpu_off_bus", "gpu_off_bus"]]
    assert group([late]) == []


SIGNS = st.lists(
    st.builds(
        lambda fault, at, node, device, kind: symptom(
            fault, at, node=node, kind=kind, component=device, names=frozenset({device})
        ),
        st.sampled_from(["gpu_off_bus", "pcie_fatal", "bmc_fan", "mount_hung", "unheard_of"]),
        st.integers(0, 2000),
        st.sampled_from(["n1", "n2"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(list(EventKind)),
    ),
    max_size=30,
)


@given(SIGNS)
def test_every_sign_but_loose_ends_is_in_exactly_one_incident_of_its_node(symptoms: list[Symptom]) -> None:
    found = group(symptoms)
    inside = [s for one in found for s in one]

    assert len(inside) == len({id(s) for s in inside})
    assert [s for s in symptoms if s.kind is not EventKind.CLEARED and s not in inside] == []
    assert all(len({s.node for s in one}) == 1 for one in found)
    assert all(list(one) == sorted(one, key=lambda s: (s.at, s.cursor)) for one in found)
    assert all(one[0].kind is not EventKind.CLEARED or len(one) > 1 for one in found)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(database_url)
    create_tables(opened)
    yield opened
    opened.dispose()


class ReplayInput:
    """A controller's history, step by step, with a clock of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.state, self.seq = engine, FleetState(), 0

    def event(self, at: datetime, fault: str, component: str, kind: str = "RAISED") -> None:
        self.seq += 1
        event = pb.Event(
            boot_id="b",
            seq=self.seq,
            at_unix_us=state_store.to_us(at),
            check="gpu_xid",
            component=component,
            fault=fault,
        )
        event.kind, event.severity = pb.EventKind.Value(f"EVENT_KIND_{kind}"), pb.SEVERITY_CRITICAL
        known = at + timedelta(seconds=1)
        with self.engine.begin() as connection:
            statements = mappers.statements(connection.dialect.name)
            hello = mappers.node_row(mappers.Hello("n1", "b", "1.0", "h100"), state_store.to_us(at))
            connection.execute(statements["hello"], [hello])
            connection.execute(statements["events"], [mappers.event_row("n1", event, state_store.to_us(known))])
            (told,) = events_after(connection, self.state.cursor, 10)
        self.take(told, known)

    def take(self, event: Event, at: datetime) -> None:
        before, step = self.state, checked.step(self.state, event, at, Policy(mode=Mode.ENFORCE))
        with self.engine.begin() as connection:
            if isinstance(event, ActionDone):
                action_queue.finish(connection, event, at)
            state_store.save(connection, before, step, at)
        self.state = step.state

    def do(self, kind: ActionKind, at: datetime, *jobs: JobView) -> None:
        with self.engine.connect() as connection:
            (intent,) = [i for i in action_queue.due(connection, at) if i.action.kind is kind]
        self.take(ActionDone(intent.action, ActionOutcome.DONE, "", jobs), at)


def test_the_story_of_a_node_is_told_from_the_first_sign_to_its_return(
    engine: Engine, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    began = datetime.now(UTC) - timedelta(hours=2)
    told = ReplayInput(engine)
    told.event(began, "pcie_fatal", "0000:1b:00.0")
    told.event(began + timedelta(seconds=2), "gpu_off_bus", GPU)
    told.do(ActionKind.DRAIN, began + timedelta(seconds=6), JobView("11", "RUNNING", True, True, 0, "ann", nodes="n1"))
    told.do(ActionKind.REQUEUE, began + timedelta(seconds=16))
    told.event(began + timedelta(minutes=30), "gpu_off_bus", GPU, "CLEARED")
    told.event(began + timedelta(minutes=30), "pcie_fatal", "0000:1b:00.0", "CLEARED")
    repaired = began + timedelta(minutes=40)
    told.take(all_ok(told.state.nodes["n1"], repaired), repaired)
    told.take(OperatorCommand("undrain", "n1", "olga"), repaired)
    told.do(ActionKind.UNDRAIN, began + timedelta(minutes=41))

    assert main(["incidents", "--database", database_url, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["node"], one["class"], one["by_hand"]) == ("n1", "fault", True)
    assert set(one["faults"]) == {"gpu_off_bus", "pcie_fatal"}
    assert one["stages_s"] == {"detect": 1.0, "drain": 5.0, "restart": 10.0, "diagnose": 2454.0, "remediate": 0.0}
    assert one["on_path_s"] == 16.0
    assert one["ended_at"] is not None

    assert main(["incident", one["id"], "--database", database_url, "--json"]) == 0
    story = [line["what"] for line in json.loads(capsys.readouterr().out)["story"]]
    for earlier, later in zip(
        (
            "raised: pcie_fatal",
            "raised: gpu_off_bus",
            "decided: drain",
            "job 11 of ann",
            "done: requeue",
            "cleared: gpu",
        ),
        ("raised: gpu_off_bus", "done: drain", "done: drain", "done: requeue", "cleared: gpu", "BurnIn -> Healthy"),
        strict=True,
    ):
        assert place(story, earlier) <= place(story, later), story
    assert main(["incident", one["id"], "--database", database_url]) == 0
    assert "drain 5.0 s" in capsys.readouterr().out
    assert main(["incident", "nothing", "--database", database_url]) == 3


def place(story: list[str], begins: str) -> int:
    return next(i for i, line in enumerate(story) if line.startswith(begins))


def test_planned_stops_and_fleet_incidents_are_classes_of_their_own(
    engine: Engine, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    told = ReplayInput(engine)
    told.event(at, "gpu_xid_warning", GPU)
    told.take(OperatorCommand("maintenance_on", "n1", "olga", "new fan"), at + timedelta(minutes=1))
    told.take(OperatorCommand("maintenance_off", "n1", "olga"), at + timedelta(minutes=9))
    with engine.begin() as connection:
        fleet = {"incident": "f-1", "node": "", "fault": "mount_hung", "component": "mount source fs1", "severity": 0}
        us = state_store.to_us(at)
        connection.execute(schema.incidents.insert().values(**fleet, causes="mount_hung", opened_us=us))

    assert main(["incidents", "--database", database_url, "--json"]) == 0
    found = {i["class"]: i for i in json.loads(capsys.readouterr().out)}
    assert found["fleet"]["component"] == "mount source fs1"
    assert found["planned"]["component"] == "olga: new fan"
    assert found["planned"]["ended_at"] is not None
    assert main(["incidents", "--database", database_url]) == 0
    everything = ["incidents", "--severity", "info", "--database", database_url, "--json"]
    capsys.readouterr()
    assert main(everything) == 0
    for one in json.loads(capsys.readouterr().out):
        assert main(["incident", one["id"], "--database", database_url, "--json"]) == 0
        read = json.loads(capsys.readouterr().out)
        assert {name: read[name] for name in one} == one


def test_only_nodes_with_an_event_that_is_so_severe_are_read(engine: Engine) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    told = ReplayInput(engine)
    told.event(at, "gpu_off_bus", GPU)
    rows = []
    for i in range(5):
        event = pb.Event(boot_id="b", seq=1, at_unix_us=state_store.to_us(at), check="c", component="p", kind=1)
        event.fault, event.severity = "gpu_throttled", pb.SEVERITY_WARNING
        rows.append(mappers.event_row(f"n{i + 2}", event, state_store.to_us(at)))
    with engine.begin() as connection:
        statements = mappers.statements(connection.dialect.name)
        hellos = [mappers.node_row(mappers.Hello(row["node"], "b", "1.0", "h100"), 1) for row in rows]
        connection.execute(statements["hello"], hellos)
        connection.execute(statements["events"], rows)
        since = at - timedelta(hours=1)
        every = incident_rows.incidents(connection, since)
        assert len(every) == 6
        grave = incident_rows.incidents(connection, since, least=Severity.MAJOR)
        assert grave == [i for i in every if i.severity >= Severity.MAJOR]
        assert incident_rows.incidents(connection, at + timedelta(minutes=1), least=Severity.MAJOR) == []


def test_the_path_that_jobs_wait_on_leaves_out_what_happens_on_a_fenced_node() -> None:
    from nodetriage.controller.store.incidents import Incident

    stages = {"detect": 1.0, "drain": 2.0, "restart": 3.0, "diagnose": 100.0, "remediate": None}
    assert on_path_s(Incident("i", "fault", "n", "f", "p", Severity.CRITICAL, (), T, None, stages)) == 6.0
