"""What the agent says of itself."""

from nodetriage.agent.core.self_check import SELF, SelfCheck, result
from nodetriage.agent.core.verdict import Kind, Verdict, advance
from nodetriage.checks.model import Outcome
from nodetriage.checks.model.faults import faults


def test_an_agent_without_troubles_is_ok() -> None:
    assert (result(SelfCheck()).outcome, result(SelfCheck()).findings) == (Outcome.OK, ())


def test_each_trouble_is_a_finding_with_its_reason() -> None:
    seen = result(SelfCheck("disk full", "/dev/kmsg: Operation not permitted", 2, 900, {"gpu_xid": 5})).findings
    assert {(f.component, f.fault) for f in seen} == {
        ("spool", "spool_not_written"),
        ("kernel_log", "kernel_log_unreadable"),
        ("kernel_log", "kernel_log_overrun"),
        ("gpu_xid", "kernel_log_overrun"),
    }
    assert {f.fault for f in seen} == set(SELF.faults)
    assert all(f.severity is faults()[f.fault].severity for f in seen)


def test_lost_kernel_records_are_told_for_an_hour_and_then_forgotten() -> None:
    verdict, changes = advance(Verdict("b"), SELF, result(SelfCheck(overruns=1, lost_records=900)), 0)
    assert [(c.kind, c.evidence["lost_records"]) for c in changes] == [(Kind.RAISED, 900)]
    verdict, changes = advance(verdict, SELF, result(SelfCheck()), 3599)
    assert changes == ()
    verdict, changes = advance(verdict, SELF, result(SelfCheck()), 3600)
    assert [c.kind for c in changes] == [Kind.CLEARED]
