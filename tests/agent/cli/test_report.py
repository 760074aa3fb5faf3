"""Results in text and JSON, and what they sum up to."""

import pytest

from nodetriage.agent.cli.report import as_json, as_text, exit_code, in_brief
from nodetriage.agent.cli.style import Style
from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Finding, Outcome, Severity

OK, SKIPPED = Result("a", Outcome.OK), Result("b", Outcome.SKIPPED, why="no GPU")
BROKEN, HUNG = Result("c", Outcome.BROKEN, why="no sense"), Result("d", Outcome.HUNG)


def found(severity: Severity, component: str = "p", **evidence: object) -> Result:
    finding = Finding(component, "gpu_off_bus", severity, evidence)  # type: ignore[arg-type]
    return Result("e", Outcome.FINDINGS, (finding,))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([OK], 0),
        ([OK, SKIPPED], 0),
        ([OK, found(Severity.INFO)], 0),
        ([OK, found(Severity.WARNING)], 1),
        ([found(Severity.MAJOR)], 2),
        ([found(Severity.CRITICAL), BROKEN], 2),
        ([found(Severity.WARNING), HUNG], 3),
        ([OK, BROKEN], 3),
        ([OK, HUNG], 3),
        ([SKIPPED, SKIPPED], 3),
        ([], 3),
    ],
)
def test_the_exit_code_is_the_worst_and_not_knowing_is_never_ok(results: list[Result], code: int) -> None:
    assert exit_code(results) == code
    assert as_json(results)["exit_code"] == code


def test_the_gravest_finding_comes_first() -> None:
    findings = (
        Finding("b", "x", Severity.INFO),
        Finding("c", "x", Severity.CRITICAL),
        Finding("a", "x", Severity.CRITICAL),
    )

    said = as_json([Result("e", Outcome.FINDINGS, findings)])

    assert [f["component"] for f in said["checks"][0]["findings"]] == ["a", "c", "b"]


def test_times_are_told_only_when_asked_for() -> None:
    assert "took_ms" not in as_json([OK])["checks"][0]
    assert as_json([OK], times=True)["checks"][0]["took_ms"] == 0.0


def test_a_long_reason_and_much_evidence_stay_within_80_columns() -> None:
    results = [
        Result("c", Outcome.BROKEN, why="word " * 60),
        found(Severity.CRITICAL, **{f"key_{i}": i for i in range(40)}),
    ]

    assert max(map(len, as_text(results, Style(80)))) <= 80


def test_numbers_and_words_read_well() -> None:
    shown = " ".join(as_text([found(Severity.MAJOR, at_s=863990.340871, share=0.5, on=True, text="two words", n=7)]))

    assert "at_s=863990.341  share=0.5  on=yes  text='two words'  n=7" in shown


def test_nothing_that_a_user_of_the_machine_named_can_move_the_cursor() -> None:
    evil = "/mnt/\x1b[2Jx\n\udce9"
    shown = list(as_text([found(Severity.CRITICAL, component=evil, name=evil), Result("c", Outcome.BROKEN, why=evil)]))

    assert all(line.isprintable() for line in shown)
    assert any("\\x1b[2Jx\\n\\udce9" in line for line in shown)


def test_colours_are_for_terminals_alone() -> None:
    assert "\x1b" not in "".join(as_text([found(Severity.CRITICAL)]))
    assert "\x1b[1;31mcritical" in "".join(as_text([found(Severity.CRITICAL)], Style(colour=True)))


def test_in_brief_trouble_comes_first_and_quiet_checks_are_told_together() -> None:
    quiet = [Result("b2", Outcome.SKIPPED, why="no GPU"), Result("a2", Outcome.OK)]

    assert list(in_brief([OK, SKIPPED, *quiet, BROKEN])) == [
        "c                 broken    no sense",
        "skipped   no GPU",
        "  b, b2",
        "ok",
        "  a, a2",
        "",
        "5 checks: 2 ok, 2 skipped, 1 broken.",
    ]
