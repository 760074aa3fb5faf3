"""Heartbeats become reports for the nodes that wait for one, when they say something new."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nodetriage.checks.model import Severity
from nodetriage.controller.engine.check_reports import checks_by_fault, reports
from nodetriage.controller.policy import transition
from nodetriage.controller.policy.state import EventKind, FleetState, NodeEvent
from nodetriage.controller.rpc.last_seen import NEVER_MS
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store.mappers import Seen
from nodetriage.controller.store.state_store import to_us
from nodetriage.v1 import health_pb2 as pb

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
RAISED = NodeEvent(1, "n1", "b", 1, NOW, EventKind.RAISED, "gpu_xid", "p", "gpu_off_bus", Severity.CRITICAL)
DRAINED = transition.step(FleetState(), RAISED, NOW, Policy(mode=Mode.ENFORCE)).state


def heard(at: datetime = NOW, boot_id: str = "b", age_ms: int = 1000, **outcomes: str) -> Seen:
    beat = pb.Heartbeat(boot_id=boot_id)
    for check, outcome in outcomes.items():
        beat.checks.add(check=check, outcome=pb.Outcome.Value(f"OUTCOME_{outcome}"), age_ms=age_ms)
    return Seen("n1", 0.0, to_us(at), beat, to_us(at))


def test_a_drained_node_is_reported_with_every_check_that_can_see_its_fault_and_no_other() -> None:
    seeing = checks_by_fault()["gpu_off_bus"]
    others = ("cpu_mce", "fs_mounts")
    beat = heard(**dict.fromkeys((*seeing, *others), "OK"))
    (report,) = reports(DRAINED, lambda _: beat)
    assert {c.check for c in report.checks} == seeing
    assert {(c.outcome, c.ran_at) for c in report.checks} == {("ok", NOW - timedelta(seconds=1))}


def test_a_check_that_never_ran_or_whose_outcome_is_new_to_us_is_not_ok() -> None:
    (report,) = reports(DRAINED, lambda _: heard(age_ms=NEVER_MS, gpu_xid="UNSPECIFIED"))
    assert [(c.check, c.outcome, c.ran_at) for c in report.checks] == [("gpu_xid", "broken", None)]


def test_silence_another_boot_and_a_node_that_is_not_drained_are_not_reported() -> None:
    assert reports(DRAINED, lambda _: None) == []
    assert reports(DRAINED, lambda _: heard(boot_id="b2", gpu_xid="OK")) == []
    at_work = replace(DRAINED, nodes={"n1": replace(DRAINED.nodes["n1"], drain=None)})
    assert reports(at_work, lambda _: heard(gpu_xid="OK")) == []


def test_the_same_heartbeat_is_reported_once_and_again_after_a_minute() -> None:
    first = heard(gpu_xid="FINDINGS")
    (report,) = reports(DRAINED, lambda _: first)
    state = transition.step(DRAINED, report, NOW, Policy(mode=Mode.ENFORCE)).state
    assert reports(state, lambda _: first) == []
    assert reports(state, lambda _: heard(NOW + timedelta(seconds=5), gpu_xid="FINDINGS", age_ms=6000)) == []
    assert len(reports(state, lambda _: heard(NOW + timedelta(seconds=5), gpu_xid="OK"))) == 1
    assert len(reports(state, lambda _: heard(NOW + timedelta(seconds=61), gpu_xid="FINDINGS", age_ms=62000))) == 1
