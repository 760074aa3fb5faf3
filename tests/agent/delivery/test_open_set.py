"""What a heartbeat says of the open findings: a digest each time, the set where it is asked for."""

from nodetriage.agent.core.verdict import CheckVerdict, OpenFinding, Verdict
from nodetriage.agent.delivery.event import Moment
from nodetriage.agent.delivery.open_set import MOST_FINDINGS, TEXT_LIMIT, stated
from nodetriage.checks.model import Confidence, Outcome, Severity
from nodetriage.service import open_set
from nodetriage.v1 import health_pb2 as pb

NOW = Moment(unix_us=1_000_000_000, boot_us=60_000_000)


def verdict(*found: OpenFinding) -> Verdict:
    return Verdict("boot", {"a": CheckVerdict(Outcome.FINDINGS, open=found), "b": CheckVerdict(Outcome.OK)})


def finding(component: str = "GPU-1", severity: Severity = Severity.MAJOR, why: str = "") -> OpenFinding:
    evidence = {"why": why} if why else {}
    return OpenFinding(component, "gpu_off_bus", severity, evidence, 50.0, 55.0, 50.0)


def test_the_digest_is_the_same_with_and_without_the_set_and_in_any_order() -> None:
    one, two = finding("GPU-1"), finding("GPU-2")

    routine, whole = stated(verdict(one, two), 9, False, NOW), stated(verdict(two, one), 9, True, NOW)

    assert routine.digest == whole.digest != stated(verdict(one), 9, False, NOW).digest
    assert (routine.stated, len(routine.findings), whole.as_of_seq, len(whole.findings)) == (False, 0, 9, 2)


def test_nothing_open_is_a_set_too() -> None:
    empty = stated(verdict(), 9, True, NOW)
    assert (empty.digest, empty.stated, len(empty.findings)) == (open_set.EMPTY, True, 0)


def test_a_finding_is_stated_as_when_it_was_raised() -> None:
    (said,) = stated(verdict(finding(why="x")), 9, True, NOW).findings

    assert (said.kind, said.check, said.component, said.fault) == (pb.EVENT_KIND_RAISED, "a", "GPU-1", "gpu_off_bus")
    assert (said.severity, said.confidence) == (pb.SEVERITY_MAJOR, Confidence.STATE)
    assert (said.at_unix_us, said.at_boot_us, said.seq) == (990_000_000, 50_000_000, 0)


def test_a_change_of_severity_changes_the_digest() -> None:
    mild, grave = (stated(verdict(finding(severity=s)), 1, False, NOW) for s in (Severity.MAJOR, Severity.CRITICAL))
    assert mild.digest != grave.digest


def test_a_set_is_bounded_and_the_gravest_are_in_it() -> None:
    many = [finding(f"p{i}", Severity.WARNING, "w" * 5000) for i in range(MOST_FINDINGS)]

    said = stated(verdict(*many, finding("worst", Severity.CRITICAL)), 9, True, NOW)

    assert (said.findings[0].component, len(said.findings), said.left_out) == ("worst", MOST_FINDINGS, 1)
    assert max(len(f.evidence["why"].text) for f in said.findings) == TEXT_LIMIT


def test_a_routine_heartbeat_grows_by_few_bytes() -> None:
    assert stated(verdict(*(finding(f"p{i}") for i in range(100))), 10**6, False, NOW).ByteSize() <= 16
