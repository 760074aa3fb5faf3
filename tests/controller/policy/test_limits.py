"""Breaker, common mode, contact, topology: what opens and ends them. Their stories are in tests/scenarios."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from checked import Steps
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from nodetriage.checks.model import Severity
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.engine.poller import merged
from nodetriage.controller.policy import liveness
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.state import (
    ActionDone,
    ActionKind,
    ActionOutcome,
    ContactChanged,
    Event,
    EventKind,
    FleetState,
    NodeEvent,
    OperatorCommand,
    SchedulerFailed,
    SchedulerSeen,
    Step,
    Tick,
)
from nodetriage.controller.scheduler import NodeView, ReservationView
from nodetriage.controller.settings.limits import BreakerLimits, CommonMode, DrainLimits, Lemons, Shadow
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.slurm import topology
from nodetriage.controller.store import schema, state_store

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Fleet:
    """Steps through events with a clock, after a first look at `size` nodes."""

    def __init__(self, rules: Policy, size: int) -> None:
        self.rules, self.now, self.state, self.events = rules, NOW, FleetState(), 0
        self.names = [f"n{i}" for i in range(size)]
        self.steps = Steps()
        self.views = {n: NodeView(n, "idle") for n in self.names}
        for name in self.names:
            self.tell(name, "", EventKind.STARTED)
        self.take(SchedulerSeen(NOW, self.views))

    def take(self, event: Event, after_s: float = 0) -> Step:
        self.now += timedelta(seconds=after_s)
        step = self.steps.step(self.state, event, self.now, self.rules)
        self.state = step.state
        return step

    def tell(
        self,
        node: str,
        fault: str,
        kind: EventKind = EventKind.RAISED,
        after_s: float = 0,
        at: datetime | None = None,
    ) -> Step:
        self.events += 1
        what = ("c", "p", fault, Severity.CRITICAL)
        self.now += timedelta(seconds=after_s)
        return self.take(NodeEvent(self.events, node, "b", self.events, at or self.now, kind, *what))

    def drained(self, node: str, fault: str) -> None:
        """The fault drains the node, and the scheduler does so at once."""
        self.events += 1
        what = ("other", "p", fault, Severity.CRITICAL)
        step = self.take(NodeEvent(self.events, node, "b", self.events, self.now, EventKind.RAISED, *what))
        (drain,) = (a for a in step.actions if a.kind is ActionKind.DRAIN)
        self.take(ActionDone(drain, ActionOutcome.DONE))

    def tell_all(self, nodes: Sequence[str], fault: str, kind: EventKind = EventKind.RAISED) -> list[str]:
        """The nodes that a drain is asked for meanwhile."""
        steps = [self.tell(node, fault, kind) for node in nodes]
        return [a.node for step in steps for a in step.actions if a.kind is ActionKind.DRAIN]


ALONE = CommonMode(enabled=False)
ROOMY = DrainLimits(10_000, 10_000, 100, 10_000, 100)


def test_the_breaker_opens_at_the_limit_and_not_below() -> None:
    fleet = Fleet(
        Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, common_mode=ALONE, breaker=BreakerLimits(max_failing_percent=20)),
        50,
    )
    assert len(fleet.tell_all(fleet.names[:9], "gpu_off_bus")) == 9
    assert not fleet.state.breaker.is_open
    assert fleet.tell_all(fleet.names[9:20], "gpu_off_bus") == []
    assert fleet.state.breaker.is_open


def test_what_fails_over_a_longer_time_than_the_window_does_not_open_it() -> None:
    fleet = Fleet(
        Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, common_mode=ALONE, breaker=BreakerLimits(window_s=600)), 50
    )
    for name in fleet.names:
        fleet.tell(name, "gpu_off_bus", after_s=70)
    assert not fleet.state.breaker.is_open


def test_an_absolute_bound_holds_where_the_percentage_would_allow_more() -> None:
    limits = BreakerLimits(max_failing_nodes=6, max_failing_percent=100)
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, common_mode=ALONE, breaker=limits), 50)
    fleet.tell_all(fleet.names[:6], "gpu_off_bus")
    assert fleet.state.breaker.is_open


def test_one_outage_of_the_scheduler_counts_once_and_ends_by_itself() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, breaker=BreakerLimits(max_scheduler_outages=2)), 10)
    for _ in range(8640):  # a day
        fleet.take(SchedulerFailed("no answer"), after_s=10)
    assert fleet.state.breaker.outage_since is not None
    assert not fleet.state.breaker.is_open
    fleet.take(SchedulerSeen(fleet.now, fleet.views), after_s=1)
    assert fleet.state.breaker.outage_since is None
    assert [a.node for a in fleet.tell("n1", "gpu_off_bus").actions] == ["n1"]


def test_nodes_that_the_scheduler_does_not_list_never_open_it() -> None:
    limits = BreakerLimits(max_failing_nodes=3, least_nodes=3)
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, common_mode=ALONE, breaker=limits), 10)
    strangers = [f"stage{i}" for i in range(9)]
    for name in strangers:
        fleet.tell(name, "", EventKind.STARTED)
    fleet.take(SchedulerSeen(fleet.now, fleet.views), after_s=1)
    assert fleet.tell_all(strangers, "gpu_off_bus") == []
    fleet.take(ContactChanged(lost=tuple(strangers)))
    assert not fleet.state.breaker.is_open
    assert fleet.tell_all(fleet.names[:3], "gpu_off_bus") == ["n0", "n1"]
    assert fleet.state.breaker.is_open, "of nodes that it lists the third does"


def test_outages_of_the_scheduler_open_it_and_it_stays_open_until_closed_with_a_reason() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, breaker=BreakerLimits(max_scheduler_outages=3)), 10)
    for _ in range(3):
        fleet.take(SchedulerFailed("no answer"), after_s=10)
        fleet.take(SchedulerSeen(fleet.now, fleet.views))
    assert fleet.state.breaker.is_open
    fleet.take(Tick(), after_s=86400)
    assert fleet.state.breaker.is_open
    fleet.take(OperatorCommand("close_breaker", "", "olga", "  "))
    assert fleet.state.breaker.is_open
    fleet.take(OperatorCommand("close_breaker", "", "olga", "slurmctld was moved"))
    facts = fleet.state.breaker
    assert (facts.is_open, facts.closed_by, facts.closed_why) == (False, "olga", "slurmctld was moved")
    fleet.take(SchedulerFailed("no answer"), after_s=1)
    assert not fleet.state.breaker.is_open, "what was before counts no more"


def test_nodes_that_sleep_or_are_in_maintenance_may_be_silent() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE), 10)
    asleep = {n: NodeView(n, "idle", frozenset({"powered_down"})) for n in fleet.names[:4]}
    marked = {n: NodeView(n, "idle", frozenset({"maint"})) for n in fleet.names[4:8]}
    fleet.take(SchedulerSeen(fleet.now, {**fleet.views, **asleep, **marked}), after_s=1)
    fleet.take(ContactChanged(lost=tuple(fleet.names[:9])))
    assert not fleet.state.breaker.is_open
    assert [s for s in liveness.lost(fleet.state, fleet.views) if s.node in asleep] == []


def test_half_the_fleet_gone_drains_nothing_even_if_slurm_loses_it_too() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE), 200)
    half = fleet.names[:100]
    fleet.take(ContactChanged(lost=tuple(half)))
    down = {n: NodeView(n, "down", reason="Not responding", reason_by="slurm") for n in half}
    fleet.take(SchedulerSeen(fleet.now, {**fleet.views, **down}), after_s=60)
    lost = liveness.lost(fleet.state, {**fleet.views, **down})
    assert {(s.node, s.fault, s.kind) for s in lost} == {(n, "node_lost", "raised") for n in half}
    assert fleet.tell_all([s.node for s in lost], "node_lost") == []
    assert [a for a in fleet.take(Tick(), after_s=3600).actions if a.kind is ActionKind.DRAIN] == []
    assert fleet.state.breaker.is_open


def test_one_fault_on_enough_nodes_is_one_incident_and_a_fault_that_only_warns_is_none() -> None:
    rules = Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, common_mode=CommonMode(shared_hold_s=0))
    fleet = Fleet(rules, 1000)
    assert len(fleet.tell_all(fleet.names[:9], "mount_missing")) == 9
    assert fleet.tell_all(fleet.names[9:40], "mount_missing") == []
    (incident,) = fleet.state.fleet_incidents
    assert (incident.fault, incident.place) == ("mount_missing", "")
    fleet.take(Tick())
    assert fleet.state.fleet_incidents[0].nodes == 40


def test_a_fault_in_shadow_opens_no_incident_and_hides_none_of_its_check_s_faults() -> None:
    rules = Policy(
        mode=Mode.ENFORCE,
        drain_limits=ROOMY,
        shadow=Shadow(faults=("mount_stale",)),
        common_mode=CommonMode(shared_hold_s=0),
    )
    fleet = Fleet(rules, 1000)
    assert fleet.tell_all(fleet.names[:40], "mount_stale") == []
    assert fleet.state.fleet_incidents == ()
    assert fleet.tell_all(fleet.names[:2], "mount_missing") == list(fleet.names[:2])


def test_hardware_that_shares_nothing_needs_far_more_nodes_than_a_fault_whose_cause_is_often_shared() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, breaker=BreakerLimits(max_failing_nodes=1000)), 1000)
    assert len(fleet.tell_all(fleet.names[:49], "gpu_off_bus")) == 49
    assert fleet.state.fleet_incidents == ()
    assert fleet.tell_all(fleet.names[49:60], "gpu_off_bus") == []
    assert [i.fault for i in fleet.state.fleet_incidents] == ["gpu_off_bus"]


def test_a_weekends_backlog_of_unrelated_faults_is_no_incident_and_one_of_a_shared_fault_is() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 2000)
    begun = fleet.now - timedelta(days=2)
    for i, name in enumerate(fleet.names[:12]):
        fleet.tell(name, "mount_hung", at=begun + timedelta(hours=4 * i))
    assert fleet.state.fleet_incidents == ()
    for i, name in enumerate(fleet.names[100:112]):
        fleet.tell(name, "mount_hung", at=begun + timedelta(minutes=1, seconds=i))
    assert [i.fault for i in fleet.state.fleet_incidents] == ["mount_hung"]


@pytest.mark.parametrize("skew_s", [-240, 240, 7200])
def test_a_node_whose_clock_is_wrong_is_part_of_what_happens_now(skew_s: int) -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 100)
    for name in fleet.names[:5]:
        fleet.tell(name, "mount_hung", at=fleet.now + timedelta(seconds=skew_s))
    assert [i.fault for i in fleet.state.fleet_incidents] == ["mount_hung"]


def test_nodes_that_were_out_before_the_fault_began_make_no_incident_and_keep_none_open() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 100)
    for name in fleet.names[:9]:
        fleet.drained(name, "gpu_off_bus")
    fleet.now += timedelta(seconds=60)
    fleet.tell_all(fleet.names[:9], "mount_hung")
    assert fleet.state.fleet_incidents == ()
    fleet.tell_all(fleet.names[20:25], "mount_hung")
    (incident,) = fleet.state.fleet_incidents
    for name in fleet.names[20:25]:
        fleet.drained(name, "pcie_fatal")
    fleet.take(Tick())
    steps = [fleet.take(Tick(), after_s=CommonMode().end_s)]
    assert fleet.state.fleet_incidents == ()
    assert [n.incident for s in steps for n in s.notices if n.kind is NoticeKind.FLEET_INCIDENT_ENDED] == [incident.id]


def test_an_incident_of_hardware_ends_when_no_further_node_joins_and_covers_nothing_later() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(max_drains_per_hour=1)), 100)
    fleet.tell_all(fleet.names[:12], "gpu_off_bus")
    assert len(fleet.state.fleet_incidents) == 1
    fleet.take(Tick(), after_s=599)
    fleet.tell("n20", "gpu_off_bus")
    assert fleet.state.nodes["n20"].drain is None
    fleet.take(Tick(), after_s=599)
    assert len(fleet.state.fleet_incidents) == 1
    fleet.take(Tick(), after_s=1)
    assert fleet.state.fleet_incidents == ()
    fleet.tell("n30", "gpu_off_bus")
    drain = fleet.state.nodes["n30"].drain
    assert drain is not None
    assert "drains an hour" in drain.queued_reason


def test_each_node_that_joins_is_reported_once_and_the_incident_again_each_hour() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 100)
    steps = [fleet.tell(n, "mount_hung") for n in fleet.names[:6]]
    steps += [fleet.take(Tick(), after_s=60) for _ in range(60)]
    notices = [n for s in steps for n in s.notices]
    joined = [n.node for n in notices if n.kind is NoticeKind.FLEET_INCIDENT_JOINED]
    assert sorted(joined) == sorted(fleet.names[:6])
    assert sum(n.kind is NoticeKind.FLEET_INCIDENT_OPEN for n in notices) == 1
    assert not [n for n in notices if n.kind is NoticeKind.DRAIN_HELD and n.node in joined]


def test_an_operator_closes_an_incident_with_a_reason_and_it_does_not_open_again_for_the_same_onsets() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, common_mode=CommonMode(shared_hold_s=0)), 100)
    fleet.tell_all(fleet.names[:6], "mount_hung")
    (incident,) = fleet.state.fleet_incidents

    def close(number: str, reason: str) -> Step:
        return fleet.take(OperatorCommand("close_incident", "", "olga", reason, incident=number), after_s=60)

    unknown, wordless = close("nonsense", "why not"), close(incident.id, " ")
    assert unknown.reply is not None
    assert f"open: {incident.id}" in unknown.reply.text
    assert wordless.reply is not None
    assert "reason" in wordless.reply.text
    done = close(incident.id, "six disks of one batch")
    assert fleet.state.fleet_incidents == ()
    assert len([a for a in done.actions if a.kind is ActionKind.DRAIN]) == 2, "the others were drained before it opened"
    fleet.tell("n50", "mount_hung")
    assert fleet.state.fleet_incidents == ()


def test_a_fabric_fault_of_one_rack_is_one_incident_and_the_next_racks_fault_is_its_own() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 72)
    racks = {n: (f"rack r{i // 18}",) for i, n in enumerate(fleet.names)}
    fleet.take(SchedulerSeen(fleet.now, fleet.views, (), racks), after_s=1)
    assert fleet.tell_all(fleet.names[:6], "gpu_fabric_incomplete") == []
    assert [(i.place, i.shared) for i in fleet.state.fleet_incidents] == [("rack r0", "rack r0")]
    assert fleet.tell_all(fleet.names[20:21], "gpu_fabric_incomplete") == []
    fleet.take(Tick(), after_s=60)
    assert fleet.state.nodes["n20"].drain is not None


@given(
    st.lists(st.tuples(st.integers(0, 29), st.sampled_from(["mount_hung", "gpu_off_bus"]), st.integers(0, 900))),
    st.booleans(),
)
def test_an_incident_always_ends_although_nothing_is_ever_repaired(
    told: list[tuple[int, str, int]], racks: bool
) -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY, breaker=BreakerLimits(least_nodes=1000)), 30)
    if racks:
        shared = {n: (f"rack r{i // 6}",) for i, n in enumerate(fleet.names)}
        fleet.take(SchedulerSeen(fleet.now, fleet.views, (), shared), after_s=1)
    for number, fault, after_s in told:
        fleet.tell(f"n{number}", fault, after_s=after_s)
        for incident in fleet.state.fleet_incidents:
            assert incident.until is None or incident.until >= incident.since
    fleet.take(Tick(), after_s=CommonMode().longest_s)
    fleet.take(Tick(), after_s=1)
    assert fleet.state.fleet_incidents == ()


def test_warnings_on_many_nodes_are_no_incident() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE), 100)
    for name in fleet.names:
        fleet.events += 1
        what = ("c", "p", "gpu_xid_warning", Severity.WARNING)
        fleet.take(NodeEvent(fleet.events, name, "b", fleet.events, fleet.now, EventKind.RAISED, *what))
    assert fleet.state.fleet_incidents == ()


def test_a_fault_that_hits_one_node_a_day_is_never_common() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 50)
    steps = [fleet.tell(n, "gpu_off_bus", after_s=86400) for n in fleet.names]
    assert [[a.node for a in s.actions if a.kind is ActionKind.DRAIN] for s in steps] == [[n] for n in fleet.names]


def test_a_narrow_incident_grows_to_the_fleets_under_its_own_id() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, drain_limits=ROOMY), 40)
    shared = dict.fromkeys(fleet.names[:8], ("switch leaf1",))
    fleet.take(SchedulerSeen(fleet.now, fleet.views, (), shared), after_s=1)
    fleet.tell_all(fleet.names[:3], "ib_link_down")
    (narrow,) = fleet.state.fleet_incidents
    assert (narrow.place, narrow.shared) == ("switch leaf1", "switch leaf1")
    fleet.tell_all(fleet.names[10:20], "ib_link_down")
    (wide,) = fleet.state.fleet_incidents
    assert (wide.id, wide.place) == (narrow.id, "")


def test_rack_after_rack_is_one_incident_of_the_fleet_and_a_rack_behind_an_ill_switch_is_the_switches() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE), 400)
    racks = {n: (f"rack r{i // 8}", f"switch s{i // 32}") for i, n in enumerate(fleet.names)}
    fleet.take(SchedulerSeen(fleet.now, fleet.views, (), racks), after_s=1)
    assert fleet.tell_all(fleet.names[:8], "mount_hung") == []
    assert [i.place for i in fleet.state.fleet_incidents] == ["switch s0"]
    assert fleet.tell_all(fleet.names[8:], "mount_hung") == []
    assert [(i.place, i.fault) for i in fleet.state.fleet_incidents] == [("", "mount_hung")]
    fleet.take(Tick(), after_s=120)
    assert fleet.state.fleet_incidents[0].nodes == 400
    assert not [n for n in fleet.state.nodes.values() if n.drain]


def test_what_guards_the_fleet_survives_a_restart() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, breaker=BreakerLimits(least_nodes=2, max_failing_percent=1)), 40)
    engine = create_engine("sqlite://")
    schema.metadata.create_all(engine)
    reserved = (ReservationView("r", ("n1", "n2")),)
    fleet.take(SchedulerSeen(fleet.now, fleet.views, reserved, {"n1": ("rack r1",)}), after_s=1)
    fleet.take(OperatorCommand("maintenance_on", "n9", "olga", "fan"))
    fleet.take(ContactChanged(lost=("n8",)))
    fleet.tell_all(fleet.names[20:32], "mount_hung")
    fleet.tell_all(fleet.names[1:3], "gpu_off_bus")
    assert fleet.state.breaker.is_open
    assert fleet.state.fleet_incidents
    with engine.begin() as connection:
        state_store.save(connection, FleetState(), Step(fleet.state), fleet.now)
    with engine.connect() as connection:
        assert state_store.load(connection) == fleet.state


def test_the_lemon_share_never_forbids_the_first() -> None:
    assert Lemons(max_percent=1).most(10) == 1
    assert Lemons(max_nodes=0).most(10_000) == 0
    assert Lemons(max_percent=2, max_nodes=500).most(10_000) == 200


def test_a_node_that_slurm_lost_is_found_again_and_an_operators_down_is_no_loss() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE), 3)
    by_hand = NodeView("n0", "down", reason="replacing the board", reason_by="otto")
    assert liveness.lost(fleet.state, {**fleet.views, "n0": by_hand}) == ()
    lost = {**fleet.views, "n0": NodeView("n0", "down", reason="Not responding", reason_by="slurm")}
    (raised,) = liveness.lost(fleet.state, lost)
    fleet.events += 1
    what = (liveness.CHECK, liveness.PART, raised.fault, Severity.CRITICAL)
    fleet.take(NodeEvent(fleet.events, "n0", liveness.CONTROLLER_BOOT, 1, fleet.now, EventKind.RAISED, *what))
    assert liveness.lost(fleet.state, lost) == ()
    ours = NodeView("n0", "down", frozenset({"drain"}), "nodetriage: node_lost node [incident x-1]", "root")
    assert liveness.lost(fleet.state, {**fleet.views, "n0": ours}) == (), "our own reason does not end it"
    (cleared,) = liveness.lost(fleet.state, fleet.views)
    assert (cleared.kind, cleared.fault) == ("cleared", "node_lost")


def test_a_new_boot_ends_what_the_agent_found_and_not_what_the_controller_saw() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE), 3)
    fleet.tell("n0", "gpu_xid_warning")
    what = (liveness.CHECK, liveness.PART, "node_lost", Severity.CRITICAL)
    fleet.take(NodeEvent(90, "n0", liveness.CONTROLLER_BOOT, 1, fleet.now, EventKind.RAISED, *what))
    fleet.take(NodeEvent(91, "n0", "next", 1, fleet.now, EventKind.STARTED))
    assert [f.fault for f in fleet.state.nodes["n0"].open_findings] == ["node_lost"]


def test_what_nodes_share_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    path.write_text('[rack]\nr1 = "n[1-2]"\n[switch]\nleaf1 = ["n1", "n3"]\n')
    assert topology.load(path) == {"n1": ("rack r1", "switch leaf1"), "n2": ("rack r1",), "n3": ("switch leaf1",)}
    assert merged({"n1": ("switch leaf1",)}, topology.load(path))["n1"] == ("switch leaf1", "rack r1")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('rack = "n1"', "rack: expected a table"),
        ("[rack]\nr1 = 3", "rack.r1: expected a node list"),
        ('[rack]\nr1 = "n[1-"', "rack.r1: expected a node list"),
        ('[rack]\nr1 = "n[1-99999999]"', "rack.r1: expected a node list"),
        ('[rack]\nr1 = ""', "rack.r1: expected a node list"),
    ],
)
def test_a_wrong_topology_file_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as refused:
        topology.load(path)
    assert "\n" not in str(refused.value)
