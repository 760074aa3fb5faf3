"""What the pure policy promises whatever it is told, and which rule decides. Its stories are in tests/scenarios."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import checked
import pytest
from checked import Steps
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.checks.model import Confidence, Severity
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.policy import common_mode, transition
from nodetriage.controller.policy.preconditions import Then, recheck
from nodetriage.controller.policy.state import (
    Action,
    ActionDone,
    ActionKind,
    ActionOutcome,
    ContactChanged,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    NodeState,
    OperatorCommand,
    SchedulerFailed,
    SchedulerSeen,
    Step,
    Tick,
    Transition,
)
from nodetriage.controller.scheduler import JobView, NodeView
from nodetriage.controller.settings.limits import BreakerLimits, CommonMode
from nodetriage.controller.settings.policy_file import load_policy, shipped_policy
from nodetriage.controller.settings.rules import DrainLimits, Mode, Policy, Requeues, Response, Rule

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NODES = ("n1", "n2", "n3", "n4")
FAULTS = {"gpu_off_bus": Severity.CRITICAL, "gpu_remap_pending": Severity.MAJOR, "gpu_xid_warning": Severity.WARNING}


def told(event_id: int, node: str = "n1", kind: EventKind = EventKind.RAISED, **more: Any) -> NodeEvent:
    given = {"boot_id": "b", "seq": event_id, "at": NOW, "check": "c", "component": "p", "fault": "gpu_off_bus"}
    return NodeEvent(id=event_id, node=node, kind=kind, **{"severity": Severity.CRITICAL, **given, **more})


def test_the_shipped_policy_is_what_the_code_has_by_default() -> None:
    assert shipped_policy() == Policy()


@pytest.mark.parametrize(
    ("severity", "response"),
    [
        (Severity.CRITICAL, Response.DRAIN_AND_REQUEUE),
        (Severity.MAJOR, Response.DRAIN_AFTER_JOB),
        (Severity.WARNING, Response.RECORD),
        (Severity.INFO, Response.RECORD),
    ],
)
def test_by_default_the_severity_decides(severity: Severity, response: Response) -> None:
    assert Policy(mode=Mode.ENFORCE).rule_for("gpu_off_bus", severity, ("main",), "h100").action is response


def test_the_rule_that_says_most_decides_and_of_equals_the_later() -> None:
    rules = (
        Rule(Response.SHADOW, fault="gpu_off_bus"),
        Rule(Response.DRAIN_AFTER_JOB, fault="gpu_off_bus", partition="debug"),
        Rule(Response.RECORD, fault="gpu_off_bus", severity=Severity.MAJOR),
        Rule(Response.DRAIN_AND_REQUEUE, fault="gpu_off_bus"),
    )
    chosen = Policy(mode=Mode.ENFORCE, rule=rules).rule_for
    assert chosen("gpu_off_bus", Severity.CRITICAL, ("main",), "").action is Response.DRAIN_AND_REQUEUE
    assert chosen("gpu_off_bus", Severity.CRITICAL, ("main", "debug"), "").action is Response.DRAIN_AFTER_JOB
    assert chosen("gpu_off_bus", Severity.MAJOR, ("main",), "").action is Response.RECORD
    assert chosen("mount_hung", Severity.MAJOR, ("main",), "").action is Response.DRAIN_AFTER_JOB


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("autority = 'act'", "autority: unknown key"),
        ("mode = 'full'", "mode: expected one of"),
        ("[severity]\nhi = 'record'", "unknown hi"),
        ("[severity]\ncritical = 'reboot'", "severity.critical: expected one of"),
        ("[[rule]]\nfault = 'gpu_on_fire'\naction = 'record'", "gpu_on_fire': expected a fault code"),
        ("[[rule]]\nfault = 'mount_hung'", "missing key: action"),
        ("[[rule]]\naction = 'record'\nconfirm = 0", "confirm of at least 1"),
        ("[drain_limits]\nmax_percent = 101", "percentages from 0 to 100"),
        ("[drain_limits]\nmax_nodes = true", "max_nodes: expected a whole number"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_policy(path)
    assert str(refused.value).startswith(str(path))
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def drains(rules: Policy, **more: Any) -> bool:
    step = checked.step(FleetState(), told(1, **more), NOW, rules)
    return any(action.kind is ActionKind.DRAIN for action in step.actions)


def test_a_finding_acts_from_the_confidence_that_the_policy_or_its_rule_asks_for() -> None:
    strict = Rule(Response.DRAIN_AND_REQUEUE, fault="gpu_off_bus", min_confidence=Confidence.WITNESSED)
    any_line = replace(strict, min_confidence=Confidence.LINE)

    assert [drains(Policy(mode=Mode.ENFORCE), confidence=c) for c in Confidence] == [False, True, True, True]
    assert [drains(Policy(mode=Mode.ENFORCE, rule=(strict,)), confidence=c) for c in Confidence] == [
        False,
        False,
        False,
        True,
    ]
    assert [drains(Policy(mode=Mode.ENFORCE, rule=(any_line,)), confidence=c) for c in Confidence] == [True] * 4


def test_what_has_too_little_confidence_is_recorded_as_what_would_be_done() -> None:
    step = checked.step(FleetState(), told(1, confidence=Confidence.LINE), NOW, Policy(mode=Mode.ENFORCE))

    assert [(a.kind, a.text) for a in step.actions] == [(ActionKind.SHADOW, "drain_and_requeue")]


def test_a_second_witness_that_comes_later_lets_the_finding_act() -> None:
    doubtful = checked.step(FleetState(), told(1, confidence=Confidence.LINE), NOW, Policy(mode=Mode.ENFORCE))
    sure = told(2, kind=EventKind.CHANGED, confidence=Confidence.WITNESSED)

    step = checked.step(doubtful.state, sure, NOW, Policy(mode=Mode.ENFORCE))

    assert [a.kind for a in step.actions] == [ActionKind.DRAIN]
    drain = step.state.nodes["n1"].drain
    assert drain
    assert drain.witnessed


def test_a_policy_file_needs_only_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[severity]\nmajor = 'record'\n[drain_limits]\nmax_nodes = 3\n")
    loaded = load_policy(path)
    assert loaded.severity == {**Policy().severity, "major": Response.RECORD}
    assert loaded.drain_limits == DrainLimits(max_nodes=3)
    assert replace(loaded, severity=Policy().severity, drain_limits=DrainLimits()) == Policy()
    assert loaded.mode is Mode.OBSERVE


def test_an_older_event_that_arrives_after_a_newer_one_changes_nothing() -> None:
    state = checked.step(FleetState(), told(1, kind=EventKind.CLEARED, seq=9), NOW, Policy(mode=Mode.ENFORCE)).state
    late = checked.step(state, told(2, kind=EventKind.RAISED, seq=5), NOW, Policy(mode=Mode.ENFORCE))
    assert late.actions == ()
    assert late.state.nodes["n1"].open_findings == ()
    assert late.state.cursor == 2
    again = checked.step(late.state, told(3, kind=EventKind.RAISED, seq=10), NOW, Policy(mode=Mode.ENFORCE))
    assert [a.kind for a in again.actions] == [ActionKind.DRAIN]


def test_an_event_of_an_earlier_boot_is_history_only() -> None:
    late = checked.step(FleetState(), told(1, present=False), NOW, Policy(mode=Mode.ENFORCE))
    assert late.actions == ()


def test_a_fleet_that_adopts_through_burn_in_sends_a_failing_node_to_repair() -> None:
    rules = Policy(mode=Mode.ENFORCE, adopt_as="burn_in")
    asked = checked.step(FleetState(), told(1), NOW, rules)
    (drain,) = asked.actions
    done = checked.step(asked.state, ActionDone(drain, ActionOutcome.DONE), NOW, rules)
    seen = [(t.before, t.after) for t in (*asked.transitions, *done.transitions)]
    assert seen == [(None, "BurnIn"), ("BurnIn", "Repair")]


def test_a_view_older_than_our_drain_is_no_sign_that_someone_resumed_the_node() -> None:
    asked = checked.step(FleetState(), told(1), NOW, Policy(mode=Mode.ENFORCE))
    drained = checked.step(
        asked.state, ActionDone(asked.actions[0], ActionOutcome.DONE), NOW, Policy(mode=Mode.ENFORCE)
    ).state
    stale = SchedulerSeen(NOW - timedelta(seconds=1), {"n1": NodeView("n1", "idle", partitions=("main",))})
    assert checked.step(drained, stale, NOW + timedelta(seconds=1), Policy(mode=Mode.ENFORCE)).transitions == ()
    fresh = replace(stale, read_at=NOW + timedelta(seconds=1))
    assert checked.step(drained, fresh, NOW + timedelta(seconds=2), Policy(mode=Mode.ENFORCE)).transitions != ()


def test_what_was_decided_before_the_mode_became_observe_is_not_done() -> None:
    enforce, observe = Policy(mode=Mode.ENFORCE), Policy(mode=Mode.OBSERVE)
    asked = checked.step(FleetState(), told(1), NOW, enforce)
    (drain,) = asked.actions
    assert recheck(asked.state, drain, NOW, enforce).then is Then.DO
    assert recheck(asked.state, drain, NOW, observe).then is Then.CANCEL
    job = JobView("11", "RUNNING", True, True, 0)
    done = ActionDone(drain, ActionOutcome.DONE, jobs=(job,))
    assert [a.kind for a in checked.step(asked.state, done, NOW, enforce).actions] == [ActionKind.REQUEUE]
    assert [a.kind for a in checked.step(asked.state, done, NOW, observe).actions] == [ActionKind.SHADOW]


@dataclass
class Run:
    """Feeds any events to the policy and acts like a scheduler that does what it is asked, in any order."""

    rules: Policy
    state: FleetState = field(default_factory=FleetState)
    now: datetime = NOW
    asked: list[Action] = field(default_factory=list)
    open: list[Action] = field(default_factory=list)
    moved: list[Transition] = field(default_factory=list)
    events: int = 0
    steps: Steps = field(default_factory=Steps)

    def take(self, event: Event) -> None:
        before = self.state
        step = self.steps.step(before, event, self.now, self.rules)
        assert transition.step(before, event, self.now, self.rules) == step, "the same question has the same answer"
        self.state = step.state
        self.moved += step.transitions
        self.asked += step.actions
        self.open += [a for a in step.actions if a.kind is not ActionKind.SHADOW]
        self.check()

    def check(self) -> None:
        for node in self.state.nodes.values():
            worst = max((f.severity for f in node.open_findings), default=Severity.INFO)
            excused = node.maintenance is not None or common_mode.covering(self.state, node)
            if worst is Severity.CRITICAL and self.rules.mode is Mode.ENFORCE and not excused:
                assert node.drain is not None, "a critical fault is never forgotten"


NODE = st.sampled_from(NODES)
JOBS = st.lists(
    st.builds(
        JobView,
        job=st.sampled_from(["1", "2", "3_1"]),
        state=st.sampled_from(["RUNNING", "SUSPENDED", "COMPLETING", "PENDING"]),
        batch=st.booleans(),
        requeueable=st.booleans(),
        restarts=st.integers(0, 3),
    ),
    max_size=3,
).map(tuple)
MOVES: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("event"), st.tuples(NODE, st.sampled_from(EventKind), st.sampled_from(sorted(FAULTS)))),
    st.tuples(st.just("done"), st.tuples(st.integers(0, 9), st.sampled_from(ActionOutcome), JOBS)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 700, 4000])),
    st.tuples(st.just("see"), st.lists(st.tuples(NODE, st.sampled_from(["", "ours", "theirs"]), st.booleans()))),
    st.tuples(st.just("undrain"), NODE),
    st.tuples(st.just("maintenance"), st.tuples(NODE, st.booleans())),
    st.tuples(st.just("silent"), st.tuples(st.lists(NODE), st.lists(NODE))),
    st.tuples(st.just("failed"), st.just("")),
    st.tuples(st.just("close"), st.sampled_from(["", "looked at"])),
)


def _event(run: Run, what: tuple[str, EventKind, str]) -> None:
    node, kind, fault = what
    run.events += 1
    run.take(told(run.events, node, kind, fault=fault, severity=FAULTS[fault], at=run.now))


def _done(run: Run, what: tuple[int, ActionOutcome, tuple[JobView, ...]]) -> None:
    index, outcome, jobs = what
    if run.open:
        run.take(ActionDone(run.open.pop(index % len(run.open)), outcome, jobs=jobs))


def _wait(run: Run, seconds: int) -> None:
    run.now += timedelta(seconds=seconds)
    run.take(Tick())


def _see(run: Run, what: list[tuple[str, str, bool]]) -> None:
    views = {}
    for name, drained_by, busy in what:
        node = run.state.nodes.get(name)
        ours = f"nodetriage: f p [incident {node.drain.incident}]" if node and node.drain else "x"
        reason = {"": "", "ours": ours, "theirs": "fan"}[drained_by]
        flags = frozenset({"drain"} if drained_by else ())
        views[name] = NodeView(name, "mixed" if busy else "idle", flags, reason, "olga", ("main",))
    run.now += timedelta(seconds=1)
    run.take(SchedulerSeen(run.now, views))


def _undrain(run: Run, node: str) -> None:
    run.take(OperatorCommand("undrain", node, "olga"))


def _maintenance(run: Run, what: tuple[str, bool]) -> None:
    run.take(OperatorCommand("maintenance_on" if what[1] else "maintenance_off", what[0], "olga", "fan"))


def _silent(run: Run, what: tuple[list[str], list[str]]) -> None:
    run.take(ContactChanged(tuple(what[0]), tuple(what[1])))


def _failed(run: Run, text: str) -> None:
    run.take(SchedulerFailed(text))


def _close(run: Run, reason: str) -> None:
    run.take(OperatorCommand("close_breaker", "", "olga", reason))


DO: dict[str, Callable[[Run, Any], None]] = {
    "event": _event,
    "done": _done,
    "wait": _wait,
    "see": _see,
    "undrain": _undrain,
    "maintenance": _maintenance,
    "silent": _silent,
    "failed": _failed,
    "close": _close,
}


@settings(max_examples=300, deadline=None)
@given(st.lists(MOVES, max_size=40), st.integers(0, 4), st.integers(0, 6), st.sampled_from(Mode))
def test_whatever_happens_the_brake_holds_and_each_run_of_a_job_is_requeued_once(
    moves: list[tuple[str, Any]], max_nodes: int, per_hour: int, mode: Mode
) -> None:
    limits = DrainLimits(per_hour, max_nodes, 100, 100, 100)
    touchy = BreakerLimits(least_nodes=3, max_scheduler_outages=3, max_actions=6)
    run = Run(Policy(mode=mode, drain_limits=limits, breaker=touchy, common_mode=CommonMode(shared_min_nodes=2)))
    for verb, what in moves:
        DO[verb](run, what)
    actions = Counter(a.id for a in run.asked if a.kind in (ActionKind.DRAIN, ActionKind.REQUEUE, ActionKind.UNDRAIN))
    assert all(count == 1 for count in actions.values())
    if mode is not Mode.ENFORCE:
        assert not actions
    assert all(t.after is not NodeState.RETIRED for t in run.moved)


MAJOR = {"fault": "gpu_remap_pending", "severity": Severity.MAJOR}
STILL_RUNNING = JobView("11", "RUNNING", True, True, 0)


def drained_after_job(policy: Policy) -> Step:
    """n1 is drained for a lesser fault while job 11 runs on."""
    asked = checked.step(FleetState(), told(1, **MAJOR), NOW, policy)
    (drain,) = asked.actions
    return checked.step(asked.state, ActionDone(drain, ActionOutcome.DONE, jobs=(STILL_RUNNING,)), NOW, policy)


def test_a_job_on_a_node_that_leaves_is_told_and_requeued_when_its_time_is_over() -> None:
    policy = Policy(mode=Mode.ENFORCE, requeue=Requeues(leave_within_s=600))
    done = drained_after_job(policy)
    assert [(a.kind, a.job, a.text) for a in done.actions] == [
        (ActionKind.WARN, "11", "the job may run for 600 s more")
    ]
    early, late = NOW + timedelta(seconds=599), NOW + timedelta(seconds=600)
    assert checked.step(done.state, Tick(), early, policy).actions == ()
    over = checked.step(done.state, Tick(), late, policy)
    (again,) = over.actions
    assert (again.kind, recheck(over.state, again, late, policy).then) == (ActionKind.DRAIN, Then.DO)
    assert checked.step(over.state, Tick(), late, policy).actions == ()
    seen = checked.step(over.state, ActionDone(again, ActionOutcome.DONE, jobs=(STILL_RUNNING,)), late, policy)
    assert [(a.kind, a.job) for a in seen.actions] == [(ActionKind.REQUEUE, "11")]


@pytest.mark.parametrize(
    "policy", [Policy(mode=Mode.ENFORCE), Policy(requeue=Requeues(leave_within_s=600), mode=Mode.OBSERVE)]
)
def test_without_a_limit_and_under_observe_a_job_runs_to_its_end(policy: Policy) -> None:
    done = drained_after_job(Policy(mode=Mode.ENFORCE))
    week = NOW + timedelta(days=7)
    assert [a.kind for a in checked.step(done.state, Tick(), week, policy).actions if a.kind is ActionKind.DRAIN] == []
