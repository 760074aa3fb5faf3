"""Changes as wire events: every value that a check may give arrives as it was, or as near as the wire allows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.agent.delivery.event import TEXT_LIMIT, Moment, make, numbered, value
from nodetriage.checks.model import Confidence, Outcome, Scalar, Severity
from nodetriage.v1 import health_pb2 as pb


def read(wire: pb.Value) -> Scalar:
    found: Scalar = getattr(wire, str(wire.WhichOneof("kind")))
    return found


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False)))
def test_numbers_and_truths_arrive_as_they_were(scalar: Scalar) -> None:
    got = read(value(scalar))
    assert (got, type(got)) == (scalar, type(scalar))


@given(st.text(max_size=200) | st.text(alphabet=st.characters(codec=None, categories=["Cs"]), max_size=9))
def test_any_text_can_be_sent_also_what_utf_8_cannot_say(text: str) -> None:
    make(Change(Kind.RAISED, "c", evidence={"text": text}), "b", Moment(0, 0))
    if text.isprintable():
        assert read(value(text)) == text


def test_what_does_not_fit_is_made_to() -> None:
    assert len(str(read(value("x" * 10 * TEXT_LIMIT)))) == TEXT_LIMIT
    assert read(value(2**70)) == float(2**70)
    assert math.isnan(float(read(value(math.nan))))


def test_a_finding_s_confidence_goes_with_it_and_what_is_no_finding_has_none() -> None:
    witnessed = Change(Kind.RAISED, "c", fault="gpu_off_bus", confidence=Confidence.WITNESSED)

    assert pb.Event.FromString(make(witnessed, "b", Moment(0, 0)).body).confidence == 4
    assert pb.Event.FromString(make(Change(Kind.OUTCOME, "c"), "b", Moment(0, 0)).body).confidence == 0


def test_every_kind_outcome_and_severity_has_its_word_on_the_wire() -> None:
    for kind in Kind:
        for outcome in Outcome:
            for severity in Severity:
                change = Change(kind, "c", outcome, "p", "f", severity, {"a": 1}, 3)
                wire = numbered(make(change, "b", Moment(7, 8)).body, 42)
                assert wire.kind == int(kind)
                assert wire.severity == int(severity)
                assert pb.Outcome.Name(wire.outcome) == f"OUTCOME_{outcome.name}"
                assert (wire.seq, wire.boot_id, wire.at_unix_us, wire.at_boot_us) == (42, "b", 7, 8)


@pytest.mark.parametrize(
    ("kind", "severity", "routine"),
    [
        (Kind.OUTCOME, Severity.WARNING, True),
        (Kind.RAISED, Severity.INFO, True),
        (Kind.RAISED, Severity.WARNING, False),
        (Kind.CLEARED, Severity.CRITICAL, False),
        (Kind.LOST, Severity.INFO, False),
    ],
)
def test_only_what_can_be_missed_is_dropped_first(kind: Kind, severity: Severity, routine: bool) -> None:
    assert make(Change(kind, "c", severity=severity), "b", Moment(0, 0)).routine is routine
