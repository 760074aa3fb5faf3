"""The verdict: what is held, what clears it, what becomes an event. Examples, then a state machine against a model."""

import dataclasses
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import Change, Kind, Verdict, advance, clear, resumed, without
from nodetriage.checks.model import Check, Confidence, Finding, Outcome, Severity
from nodetriage.checks.model.faults import faults

GONE, REBOOT = "ib_link_down", "gpu_row_remap_failed"
FADING = "kernel_log_overrun"
FADES_S = faults()[FADING].forgotten_after_s or 0.0


def check(**fields: Any) -> Check[Any, Any]:
    return Check(name="c", read=lambda h: None, judge=lambda n, b, p: (), policy=None, faults=(), **fields)


def found(*findings: Finding, **fields: Any) -> Result:
    return Result("c", Outcome.FINDINGS if findings else Outcome.OK, findings, **fields)


def down(component: str = "mlx5_0/1", severity: Severity = Severity.MAJOR, **evidence: int) -> Finding:
    return Finding(component, GONE, severity, evidence)


class Story:
    """A verdict with what happened to it so far."""

    def __init__(self, **fields: Any) -> None:
        self.check = check(**fields)
        self.verdict = Verdict("boot-1")

    def see(self, result: Result, at_s: float) -> list[tuple[Kind, str, str]]:
        self.verdict, changes = advance(self.verdict, self.check, result, at_s)
        self.changes = changes
        return [(c.kind, c.component, c.fault) for c in changes]

    @property
    def held(self) -> set[tuple[str, str]]:
        return {h.key for c in self.verdict.checks.values() for h in c.open}


def test_the_vocabulary_still_ends_as_these_tests_assume() -> None:
    assert (faults()[GONE].latching, faults()[REBOOT].latching, FADES_S) == ("no", "boot", 3600.0)


def test_a_condition_is_raised_once_and_cleared_once() -> None:
    story = Story()
    assert story.see(found(down()), 1) == [(Kind.RAISED, "mlx5_0/1", GONE)]
    assert story.see(found(down()), 2) == []
    assert story.see(found(), 3) == [(Kind.CLEARED, "mlx5_0/1", GONE)]
    assert story.see(found(), 4) == []


def test_a_condition_must_be_seen_in_consecutive_runs_before_it_counts() -> None:
    story = Story(raise_after=3)
    assert story.see(found(down()), 1) == story.see(found(down()), 2) == []
    story.see(found(), 3)
    assert story.see(found(down()), 4) == story.see(found(down()), 5) == []
    assert story.see(found(down()), 6) == [(Kind.RAISED, "mlx5_0/1", GONE)]


def test_a_run_that_did_not_look_neither_adds_to_nor_breaks_the_consecutive_runs() -> None:
    story = Story(raise_after=2)
    story.see(found(down()), 1)
    story.see(Result("c", Outcome.BROKEN), 2)
    assert (Kind.RAISED, "mlx5_0/1", GONE) in story.see(found(down()), 3)


def test_a_condition_must_be_missed_in_consecutive_runs_before_it_is_gone() -> None:
    story = Story(clear_after=2)
    story.see(found(down()), 1)
    assert story.see(found(), 2) == []
    assert story.see(found(down()), 3) == []
    assert story.see(found(), 4) == []
    assert story.see(found(), 5) == [(Kind.CLEARED, "mlx5_0/1", GONE)]


def test_a_severity_that_changes_is_told() -> None:
    story = Story()
    story.see(found(down()), 1)
    assert story.see(found(down(severity=Severity.CRITICAL)), 2) == [(Kind.CHANGED, "mlx5_0/1", GONE)]
    assert story.changes[0].severity is Severity.CRITICAL


def test_a_second_witness_is_told_and_a_line_alone_does_not_take_it_back() -> None:
    story = Story()
    story.see(found(Finding("gpu", REBOOT, Severity.CRITICAL, confidence=Confidence.LINE)), 1)
    told = story.see(found(Finding("gpu", REBOOT, Severity.CRITICAL, confidence=Confidence.WITNESSED)), 2)
    story.see(found(Finding("gpu", REBOOT, Severity.CRITICAL, confidence=Confidence.LINE)), 3)

    assert told == [(Kind.CHANGED, "gpu", REBOOT)]
    assert story.verdict.checks["c"].open[0].confidence is Confidence.WITNESSED


def test_an_event_is_held_until_reboot_though_it_is_reported_once() -> None:
    story = Story()
    story.see(found(Finding("GPU-1", REBOOT, Severity.CRITICAL)), 1)
    for at_s in range(2, 50):
        assert story.see(found(), at_s * 1000) == []
    assert story.held == {("GPU-1", REBOOT)}
    assert resumed(story.verdict, "boot-1") == story.verdict
    assert resumed(story.verdict, "boot-2") == Verdict("boot-2")


def test_a_milder_event_does_not_soften_a_fault_that_is_held() -> None:
    story = Story()
    for at_s, severity in enumerate((Severity.MAJOR, Severity.CRITICAL, Severity.MAJOR, Severity.WARNING)):
        story.see(found(Finding("gpu", REBOOT, severity, {"line": at_s})), at_s)

    (held,) = story.verdict.checks["c"].open
    assert (held.severity, held.evidence, held.occurrences) == (Severity.CRITICAL, {"line": 1}, 4)


def test_what_is_held_against_a_part_that_was_left_alone_is_kept_and_the_rest_is_judged() -> None:
    story = Story()
    story.see(found(down("gpu-a"), down("gpu-b")), 1)

    alone = Result("c", Outcome.SKIPPED, why="not looked at: gpu-a", excluded=("gpu-a",))
    told = story.see(alone, 2)

    assert (Kind.CLEARED, "gpu-b", GONE) in told
    assert story.held == {("gpu-a", GONE)}
    assert (Kind.CLEARED, "gpu-a", GONE) in story.see(found(), 3)


def test_a_part_that_is_left_alone_for_a_round_keeps_its_place_in_the_count() -> None:
    story = Story(raise_after=2)
    story.see(found(down("gpu-a")), 1)

    story.see(Result("c", Outcome.SKIPPED, why="not looked at: gpu-a", excluded=("gpu-a",)), 2)

    assert (Kind.RAISED, "gpu-a", GONE) in story.see(found(down("gpu-a")), 3)


def test_an_event_counts_at_once_even_if_conditions_have_to_wait() -> None:
    assert Story(raise_after=3).see(found(Finding("GPU-1", REBOOT, Severity.CRITICAL)), 1)


def test_an_event_that_happens_again_is_repeated_at_a_limited_rate_and_none_is_forgotten() -> None:
    story = Story()
    kinds = []
    for i in range(20):  # one every 10 s
        kinds += story.see(found(Finding("GPU-1", REBOOT, Severity.CRITICAL, {"seq": i})), i * 10.0)
    assert [k for k, _, _ in kinds] == [Kind.RAISED, Kind.REPEATED, Kind.REPEATED, Kind.REPEATED]
    assert story.see(found(), 500.0) == [(Kind.REPEATED, "GPU-1", REBOOT)]
    assert story.changes[0].occurrences == 20
    assert story.see(found(), 900.0) == []


def test_an_event_that_fades_is_forgotten_so_long_after_it_was_last_seen() -> None:
    story = Story()
    story.see(found(Finding("log", FADING, Severity.WARNING)), 0)
    story.see(found(Finding("log", FADING, Severity.WARNING)), 1000)
    assert story.see(found(), 1000 + FADES_S - 1) != [(Kind.CLEARED, "log", FADING)]
    assert story.held
    assert story.see(found(), 1000 + FADES_S) == [(Kind.CLEARED, "log", FADING)]


def test_a_clearing_event_ends_a_held_fault_but_not_one_found_in_the_same_run() -> None:
    story = Story()
    fault = Finding("GPU-1", REBOOT, Severity.CRITICAL)
    story.see(found(fault), 1)
    assert story.see(found(cleared=(("GPU-1", REBOOT),)), 2) == [(Kind.CLEARED, "GPU-1", REBOOT)]
    story.see(found(fault), 3)
    assert [k for k, _, _ in story.see(found(fault, cleared=(("GPU-1", REBOOT),)), 4)] == [Kind.CLEARED, Kind.RAISED]


def test_a_check_that_sees_a_reset_ends_what_another_reported_of_that_component_and_of_no_other() -> None:
    story = Story()
    story.see(found(Finding("GPU-1", REBOOT, Severity.CRITICAL), Finding("GPU-2", REBOOT, Severity.CRITICAL)), 1)
    stranger = dataclasses.replace(story.check, name="d")
    sees_resets = dataclasses.replace(stranger, ends=(REBOOT,))
    reset = Result("d", Outcome.OK, cleared=(("GPU-1", REBOOT),))
    assert advance(story.verdict, stranger, reset, 2)[1] == ()

    story.verdict, changes = advance(story.verdict, sees_resets, reset, 2)

    assert [(c.kind, c.check, c.component, c.evidence["cleared_by"]) for c in changes] == [
        (Kind.CLEARED, "c", "GPU-1", "d")
    ]
    assert story.held == {("GPU-2", REBOOT)}


def test_skipped_broken_and_hung_runs_clear_nothing() -> None:
    story = Story()
    story.see(found(down()), 1)
    for at_s, outcome in enumerate((Outcome.SKIPPED, Outcome.BROKEN, Outcome.HUNG), 2):
        assert story.see(Result("c", outcome, why="x"), at_s) == [(Kind.OUTCOME, "", "")]
        assert story.held == {("mlx5_0/1", GONE)}
    assert story.verdict.checks["c"].outcome is Outcome.HUNG


def test_a_hang_is_a_finding_at_once_and_over_when_the_check_answers_whatever_it_says() -> None:
    hang = Result("c", Outcome.HUNG, (Finding("/data", "mount_hung", Severity.MAJOR, {"wchan": "x"}),), why="no answer")
    for answer in (found(), Result("c", Outcome.BROKEN), Result("c", Outcome.SKIPPED), found(down())):
        story = Story(raise_after=3, clear_after=3)
        assert (Kind.RAISED, "/data", "mount_hung") in story.see(hang, 1)
        assert story.see(Result("c", Outcome.HUNG, why="waits"), 2) == []
        assert (Kind.CLEARED, "/data", "mount_hung") in story.see(answer, 3)


def test_a_hang_elsewhere_means_that_the_first_call_came_back() -> None:
    story = Story()
    story.see(Result("c", Outcome.HUNG, (Finding("/a", "mount_hung", Severity.MAJOR),)), 1)
    changes = story.see(Result("c", Outcome.HUNG, (Finding("/b", "mount_hung", Severity.MAJOR),)), 2)
    assert changes == [(Kind.CLEARED, "/a", "mount_hung"), (Kind.RAISED, "/b", "mount_hung")]


def test_outcomes_between_ok_and_findings_are_told_by_the_findings_alone() -> None:
    story = Story()
    assert story.see(found(), 1) == []
    assert story.see(found(down()), 2) == [(Kind.RAISED, "mlx5_0/1", GONE)]


def test_an_operator_can_clear_what_is_held_and_nothing_else() -> None:
    story = Story()
    story.see(found(Finding("GPU-1", REBOOT, Severity.CRITICAL)), 1)
    assert clear(story.verdict, "c", "GPU-2", REBOOT, "ann") == (story.verdict, ())
    now, changes = clear(story.verdict, "c", "GPU-1", REBOOT, "ann")
    assert [(c.kind, c.evidence["cleared_by"]) for c in changes] == [(Kind.CLEARED, "ann")]
    assert now.checks["c"].open == ()


def test_what_a_check_held_is_cleared_when_the_check_is_switched_off() -> None:
    story = Story()
    story.see(found(down()), 1)
    now, changes = without(story.verdict, ["c"])
    assert [(c.kind, c.fault) for c in changes] == [(Kind.CLEARED, GONE), (Kind.OUTCOME, "")]
    assert changes[1].outcome is Outcome.SKIPPED
    assert now.checks == {}


def test_a_check_that_nobody_switched_off_keeps_what_it_said() -> None:
    story = Story()
    story.see(found(down()), 1)
    assert without(story.verdict, ["other"]) == (story.verdict, ())


PARTS = st.sampled_from(("a", "b"))
FAULTS = st.sampled_from((GONE, REBOOT, FADING))
FINDINGS = st.builds(Finding, PARTS, FAULTS, st.sampled_from(Severity), st.just({}))
RESULTS = st.one_of(
    st.lists(FINDINGS, max_size=4).map(lambda f: found(*f)),
    st.sampled_from([Result("c", Outcome.SKIPPED), Result("c", Outcome.BROKEN), Result("c", Outcome.HUNG)]),
    PARTS.map(lambda p: Result("c", Outcome.HUNG, (Finding(p, "mount_hung", Severity.MAJOR),))),
)


class VerdictMachine(RuleBasedStateMachine):
    """What a controller knows from the events alone must be what the verdict holds, whatever happens and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.check = check(raise_after=2, clear_after=2)
        self.verdict = Verdict("boot-1")
        self.now_s = 0.0
        self.told: dict[tuple[str, str], Severity] = {}
        self.outcome = Outcome.OK

    def tell(self, changes: tuple[Change, ...]) -> None:
        for c in changes:
            key = (c.component, c.fault)
            if c.kind is Kind.RAISED:
                assert key not in self.told, "raised twice"
                self.told[key] = c.severity
            elif c.kind in (Kind.CHANGED, Kind.REPEATED):
                assert key in self.told, "changed before it was raised"
                assert c.kind is Kind.REPEATED or self.told[key] != c.severity
                self.told[key] = c.severity
            elif c.kind is Kind.CLEARED:
                del self.told[key]

    @rule(result=RESULTS, later_s=st.sampled_from((0.0, 1.0, 61.0, 1800.0, 4000.0)))
    def one_run(self, result: Result, later_s: float) -> None:
        self.now_s += later_s
        looked = result.outcome in (Outcome.OK, Outcome.FINDINGS)
        before = dict(self.told)
        self.verdict, changes = advance(self.verdict, self.check, result, self.now_s)
        self.tell(changes)
        gone = {k for k in before.keys() - self.told.keys() if k[1] != "mount_hung"}
        assert looked or not gone, "a run that did not look cleared something"
        assert not any(fault == REBOOT for _, fault in gone)
        if looked:
            assert not any(fault == "mount_hung" for _, fault in self.told)
            assert {(f.component, f.fault) for f in result.findings if f.fault != GONE} <= self.told.keys()
        assert self.verdict.checks["c"].outcome is result.outcome

    @rule()
    def the_agent_restarts(self) -> None:
        kept = msgspec.json.decode(msgspec.json.encode(self.verdict), type=Verdict)
        assert kept == self.verdict
        self.verdict = resumed(kept, "boot-1")

    @rule()
    def the_node_boots(self) -> None:
        self.verdict = resumed(self.verdict, "boot-2")
        self.verdict = dataclasses.replace(self.verdict, boot_id="boot-1")
        assert self.verdict.checks == {}
        self.told.clear()  # the controller sees the new boot id

    @rule(key=st.tuples(PARTS, FAULTS))
    def an_operator_clears(self, key: tuple[str, str]) -> None:
        self.verdict, changes = clear(self.verdict, "c", *key, "ann")
        self.tell(changes)
        assert key not in self.told

    @invariant()
    def the_events_tell_all(self) -> None:
        held = {h.key: h.severity for c in self.verdict.checks.values() for h in c.open}
        assert held == self.told


TestVerdictMachine = VerdictMachine.TestCase
TestVerdictMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
