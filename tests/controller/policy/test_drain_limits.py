"""Drain limits: how many drains go through, which ones first, and that the rest waits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.policy import drain_limits, transition
from nodetriage.controller.policy.drains import held
from nodetriage.controller.policy.fleet_state import Upkeep
from nodetriage.controller.policy.notices import Notice, NoticeKind
from nodetriage.controller.policy.reason import reason_text
from nodetriage.controller.policy.state import (
    Action,
    ActionDone,
    ActionKind,
    ActionOutcome,
    DrainFact,
    DrainStatus,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    NodeFacts,
    NodeState,
    SchedulerSeen,
    Step,
    Tick,
)
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.settings.limits import BreakerLimits, CommonMode
from nodetriage.controller.settings.rules import DrainLimits, Mode, Policy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NO_LIMIT = DrainLimits(1000, 1000, 100, 1000, 100)


def waiting(
    name: str,
    severity: Severity = Severity.CRITICAL,
    at_s: int = 0,
    partitions: tuple[str, ...] = ("main",),
    status: DrainStatus = DrainStatus.WANTED,
    *,
    theirs: bool = False,
    witnessed: bool = False,
) -> NodeFacts:
    at = NOW + timedelta(seconds=at_s)
    done_at = at if status in (DrainStatus.DONE, DrainStatus.RETURNING) else None
    more = {"theirs": theirs, "witnessed": witnessed}
    drain = DrainFact(name, "f", "p", severity, True, status, at, ("f",), done_at, **more)
    return NodeFacts(name, NodeState.SUSPECT, at, partitions=partitions, drain=drain)


def drained(name: str, at_s: int = 0, **upkeep: Any) -> NodeFacts:
    return replace(waiting(name, at_s=at_s, status=DrainStatus.DONE), upkeep=Upkeep(**upkeep))


def fleet(*nodes: NodeFacts, size: int = 100, **more: int) -> FleetState:
    return FleetState(nodes={n.node: n for n in nodes}, sizes={"": size, "main": size, **more})


def released(state: FleetState, limits: DrainLimits, now: datetime = NOW) -> Step:
    work = UnitOfWork(state, now)
    drain_limits.release(work, Policy(mode=Mode.ENFORCE, drain_limits=limits))
    return work.step()


def names(step: Step) -> list[str]:
    return [a.node for a in step.actions]


def why(step: Step, name: str) -> str:
    drain = step.state.nodes[name].drain
    assert drain is not None
    return drain.queued_reason


def test_the_worst_goes_first_and_of_equals_the_oldest() -> None:
    state = fleet(waiting("a", Severity.MAJOR, 0), waiting("b", at_s=9), waiting("c", at_s=3))
    assert names(released(state, NO_LIMIT)) == ["c", "b", "a"]
    held = released(state, DrainLimits(max_drains_per_hour=1, max_percent=100, partition_max_percent=100))
    assert names(held) == ["c"]
    assert [n.node for n in drain_limits.held(held.state)] == ["b", "a"]
    assert why(held, "a") == "limit reached: 1 drains an hour"


def test_an_hour_later_there_is_room_again() -> None:
    limits = DrainLimits(max_drains_per_hour=1, max_percent=100, partition_max_percent=100)
    first = released(fleet(waiting("a"), waiting("b")), limits)
    assert names(released(first.state, limits, NOW + timedelta(minutes=59, seconds=59))) == []
    assert names(released(first.state, limits, NOW + timedelta(hours=1))) == ["b"]


def test_a_percentage_rounds_down_but_always_allows_one() -> None:
    three = tuple(waiting(x) for x in "abc")
    assert len(names(released(fleet(*three, size=59), DrainLimits(max_percent=5, partition_max_percent=100)))) == 2
    step = released(fleet(*three, size=3), DrainLimits(max_percent=5, partition_max_percent=100))
    assert len(names(step)) == 1
    assert why(step, "b") == "limit reached: 5 % of the fleet (1 of 3 nodes) newly drained"


def test_nothing_goes_through_a_limit_of_zero() -> None:
    for limits in (DrainLimits(max_nodes=0), DrainLimits(max_percent=0), DrainLimits(max_drains_per_hour=0)):
        assert names(released(fleet(waiting("a")), limits)) == []


def test_a_partition_has_its_own_limit_and_the_others_go_on() -> None:
    limits = DrainLimits(100, 100, 100, partition_max_nodes=1, partition_max_percent=100)
    state = fleet(
        waiting("a"),
        waiting("b"),
        waiting("c", partitions=("debug",)),
        waiting("d", partitions=("debug", "main")),
        debug=10,
    )
    step = released(state, limits)
    assert names(step) == ["a", "c"]
    assert why(step, "d") == "limit reached: 1 nodes of partition debug newly drained"


def test_nodes_that_others_drained_do_not_count() -> None:
    limits = DrainLimits(max_nodes=1, max_percent=100, partition_max_percent=100)
    theirs = waiting("a", status=DrainStatus.DONE, theirs=True)
    assert names(released(fleet(theirs, waiting("b")), limits)) == ["b"]
    ours = waiting("a", status=DrainStatus.DONE)
    assert names(released(fleet(ours, waiting("b")), limits)) == []


def test_a_hold_that_does_not_change_is_not_written_again() -> None:
    limits = DrainLimits(max_nodes=0)
    once = released(fleet(waiting("a")), limits).state
    assert released(once, limits).state is once


@pytest.mark.parametrize("status", [s for s in DrainStatus if s is not DrainStatus.WANTED])
def test_what_is_under_way_is_not_asked_for_again(status: DrainStatus) -> None:
    assert names(released(fleet(waiting("a", status=status)), NO_LIMIT)) == []


@given(
    st.lists(st.tuples(st.sampled_from(Severity), st.integers(0, 60)), max_size=30),
    st.integers(0, 10),
    st.integers(0, 10),
    st.integers(0, 100),
)
def test_every_limit_holds_and_nothing_is_lost(
    wanted: list[tuple[Severity, int]], per_hour: int, max_nodes: int, percent: int
) -> None:
    state = fleet(*(waiting(f"n{i}", *w) for i, w in enumerate(wanted)), size=40)
    step = released(state, DrainLimits(per_hour, max_nodes, percent, 1000, 100))
    share = max(1, 40 * percent // 100) if percent else 0
    assert len(step.actions) == min(len(wanted), per_hour, max_nodes, share)
    assert len(step.actions) + len(drain_limits.held(step.state)) == len(wanted)
    went = [a.severity for a in step.actions]
    left = [n.drain.severity for n in drain_limits.held(step.state) if n.drain]
    assert not went or not left or min(went) >= max(left)


ONE = DrainLimits(max_nodes=1, max_percent=100, partition_max_percent=100)
LATER = NOW + timedelta(hours=4)


def test_a_node_in_repair_does_not_count_and_one_that_was_drained_just_now_does() -> None:
    assert names(released(fleet(drained("a"), waiting("b")), ONE, LATER)) == ["b"]
    assert names(released(fleet(drained("a"), waiting("b")), ONE, LATER - timedelta(seconds=1))) == []
    assert names(released(fleet(drained("a", ticket="RMA 4711"), waiting("b")), ONE)) == ["b"]


def test_what_is_beyond_the_repair_pool_counts_as_newly_drained_and_operators_read_so() -> None:
    limits = replace(ONE, repair_max_nodes=1)
    assert names(released(fleet(drained("a"), waiting("b")), limits, LATER)) == ["b"]
    full = released(fleet(drained("a"), drained("b"), waiting("c")), limits, LATER)
    assert names(full) == []
    assert why(full, "c") == "limit reached: 1 nodes of the fleet newly drained; the repair pool is full"


def test_nodes_that_the_scheduler_does_not_list_and_retired_ones_never_count_and_are_not_drained() -> None:
    gone = drained("a", unlisted=True)
    retired = replace(drained("b"), state=NodeState.RETIRED)
    stranger = replace(waiting("d"), upkeep=Upkeep(unlisted=True))
    step = released(fleet(gone, retired, waiting("c"), stranger), ONE)
    assert names(step) == ["c"]
    assert why(step, "d") == "the scheduler lists no node of this name"


def test_an_order_drains_no_node_that_the_scheduler_does_not_list() -> None:
    waits = waiting("d")
    assert waits.drain is not None
    ordered = replace(waits, drain=replace(waits.drain, at_once=True))
    assert names(released(fleet(ordered), ONE)) == ["d"]
    stranger = replace(ordered, upkeep=Upkeep(unlisted=True))
    assert why(released(fleet(stranger), ONE), "d") == "the scheduler lists no node of this name"


def test_the_scheduler_says_which_nodes_it_lists_and_a_future_node_is_none() -> None:
    state = fleet(drained("a"), drained("b"), drained("c"))
    seen = {"a": NodeView("a", "idle", frozenset({"drain"})), "b": NodeView("b", "future")}
    after = transition.step(state, SchedulerSeen(NOW, seen), NOW, Policy(mode=Mode.ENFORCE)).state
    assert {n.node: n.upkeep.unlisted for n in after.nodes.values()} == {"a": False, "b": True, "c": True}


def test_a_witnessed_fault_has_a_larger_limit_of_its_own_and_takes_nothing_from_the_others() -> None:
    limits = replace(ONE, witnessed_max_nodes=2, witnessed_max_percent=100)
    nodes = [waiting(f"w{i}", at_s=i, witnessed=True) for i in range(3)]
    step = released(fleet(*nodes, waiting("a", at_s=9), waiting("b", at_s=10)), limits)
    assert names(step) == ["w0", "w1", "a"]
    assert why(step, "w2") == "limit reached: 2 nodes of the fleet newly drained"


def test_one_node_that_is_drained_again_and_again_uses_up_one_drain_an_hour() -> None:
    limits = DrainLimits(2, 100, 100, 100, 100)
    state = released(fleet(waiting("a")), limits).state
    for i in range(5):
        again = {**state.nodes, "a": waiting("a", at_s=i)}
        step = released(replace(state, nodes=again), limits, NOW + timedelta(minutes=i))
        assert names(step) == ["a"]
        state = step.state
    both = {**state.nodes, "b": waiting("b"), "c": waiting("c")}
    assert names(released(replace(state, nodes=both), limits, NOW + timedelta(minutes=5))) == ["b"]


def test_the_wait_of_a_node_that_others_resume_doubles_and_is_forgotten_after_a_day() -> None:
    def at(*resumed: datetime) -> Step:
        node = replace(waiting("a"), upkeep=Upkeep(resumed=resumed))
        return released(fleet(node), NO_LIMIT, NOW + timedelta(seconds=300))

    assert names(at(NOW)) == ["a"]
    assert names(at(NOW, NOW)) == ["a"]
    assert why(at(NOW, NOW, NOW), "a").startswith("another tool resumed it 3 times")
    old = NOW - timedelta(days=2)
    assert names(at(old, old, old, old)) == ["a"]


def notes(step: Step) -> list[Notice]:
    return [n for n in step.notices if n.kind is NoticeKind.DRAIN_HELD]


def test_a_held_critical_finding_is_reported_at_once_and_each_hour_with_what_to_do() -> None:
    policy = Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(max_nodes=0))
    world = World(policy)
    what = ("c", "p", "gpu_off_bus", Severity.CRITICAL)
    event = NodeEvent(1, "n1", "b", 1, NOW, EventKind.RAISED, *what)
    first = transition.step(world.state, event, NOW, policy)
    (note,) = notes(first)
    assert note.node == "n1"
    assert note.text.startswith("n1 is not drained for gpu_off_bus on p: limit reached")
    assert "0 nodes of the fleet newly drained" in note.text
    assert "nodetriagectl drain --now n1" in note.text
    early = transition.step(first.state, Tick(), NOW + timedelta(seconds=3599), policy)
    assert notes(early) == []
    assert len(notes(transition.step(early.state, Tick(), NOW + timedelta(seconds=3600), policy))) == 1


def test_a_critical_finding_of_too_little_confidence_is_reported_with_the_reason_why_it_does_not_act() -> None:
    event = NodeEvent(1, "n1", "b", 1, NOW, EventKind.RAISED, "c", "p", "gpu_off_bus", Severity.CRITICAL)
    first = transition.step(
        World(Policy(mode=Mode.ENFORCE)).state,
        replace(event, confidence=Confidence.LINE),
        NOW,
        Policy(mode=Mode.ENFORCE),
    )

    (note,) = notes(transition.step(first.state, Tick(), NOW + held.TOLD_AFTER, Policy(mode=Mode.ENFORCE)))

    assert first.state.nodes["n1"].drain is None
    assert "its confidence is line, and the policy acts from device on" in note.text
    assert "nodetriagectl drain --now n1" in note.text


def test_a_held_finding_that_is_not_critical_is_not_reported() -> None:
    step = transition.step(
        fleet(waiting("a", Severity.MAJOR)),
        Tick(),
        NOW,
        Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(max_nodes=0)),
    )
    assert notes(step) == []


def test_a_drain_that_the_scheduler_does_not_do_is_reported() -> None:
    asked = released(fleet(waiting("a")), NO_LIMIT).state
    assert notes(transition.step(asked, Tick(), NOW + timedelta(seconds=49), Policy(mode=Mode.ENFORCE))) == []
    (note,) = notes(transition.step(asked, Tick(), NOW + held.TOLD_AFTER, Policy(mode=Mode.ENFORCE)))
    assert "the scheduler has not done it yet" in note.text


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = ["break", "done", "repaired", "resume", "ticket", "tick", "hour", "see"]
    return draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 19)), max_size=60))


@given(happenings(), st.integers(0, 4), st.integers(1, 4), st.integers(0, 4))
def test_the_limits_hold_in_any_order_of_events_and_repairs_block_no_drain(
    told: list[tuple[str, int]], per_hour: int, max_nodes: int, pool: int
) -> None:
    limits = DrainLimits(per_hour, max_nodes, 100, 100, 100, repair_max_nodes=pool, repair_max_percent=100)
    quiet = BreakerLimits(least_nodes=1000)
    policy = Policy(mode=Mode.ENFORCE, drain_limits=limits, breaker=quiet, common_mode=CommonMode(enabled=False))
    world = World(policy)
    for what, number in told:
        world.happen(what, f"n{number}")
        nodes = world.state.nodes.values()
        hour = {n for n, at in world.drained if world.now - at < timedelta(hours=1)}
        assert len(hour) <= per_hour
        out = [n for n in nodes if n.drain and n.drain.status is not DrainStatus.WANTED]
        handed = sum(_in_repair(n, world.now) for n in out)
        assert len(out) - min(handed, pool) <= max_nodes
        # What waits for room waits because of new drains, never because of repairs that the pool holds.
        for node in nodes:
            if node.drain and node.drain.queued_reason.startswith(f"limit reached: {max_nodes} nodes"):
                assert len(out) - min(handed, pool) >= max_nodes


def _in_repair(node: NodeFacts, now: datetime) -> bool:
    done_at = node.drain.done_at if node.drain else None
    return done_at is not None and (node.upkeep.ticket != "" or now - done_at >= timedelta(hours=4))


class World:
    """Twenty nodes, and a scheduler that does at once, or later, what it is asked."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.now, self.seq = policy, NOW, 0
        self.state, self.drained, self.asked = FleetState(), list[tuple[str, datetime]](), dict[str, Action]()
        self.views = {f"n{i}": NodeView(f"n{i}", "idle") for i in range(20)}
        self.take(SchedulerSeen(self.now, self.views))

    def take(self, event: Event) -> None:
        self.now += timedelta(seconds=1)
        step = transition.step(self.state, event, self.now, self.policy)
        self.state = step.state
        for action in step.actions:
            if action.kind is ActionKind.DRAIN:
                self.drained.append((action.node, self.now))
                self.asked[action.node] = action

    def happen(self, what: str, name: str) -> None:
        if what in ("break", "repaired"):
            self.seq += 1
            kind = EventKind.RAISED if what == "break" else EventKind.CLEARED
            about = ("c", "p", "gpu_off_bus", Severity.CRITICAL)
            self.take(NodeEvent(self.seq, name, "b", self.seq, self.now, kind, *about))
        elif what == "done" and name in self.asked:
            action = self.asked.pop(name)
            ours = reason_text(action.fault, action.component, action.incident)
            self.views[name] = NodeView(name, "idle", frozenset({"drain"}), ours)
            self.take(ActionDone(action, ActionOutcome.DONE))
        elif what == "resume":
            self.views[name] = NodeView(name, "idle")
            self.take(SchedulerSeen(self.now, self.views))
        elif what == "ticket" and (node := self.state.nodes.get(name)):
            with_ticket = replace(node, upkeep=replace(node.upkeep, ticket="RMA 1"))
            self.state = replace(self.state, nodes={**self.state.nodes, name: with_ticket})
        elif what == "see":
            self.take(SchedulerSeen(self.now, self.views))
        self.now += timedelta(hours=1) if what == "hour" else timedelta(0)
        self.take(Tick())
