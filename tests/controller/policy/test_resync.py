"""Whatever agent, database and Slurm lose or change: after one round of looking they agree."""

from dataclasses import replace
from datetime import UTC, datetime

from drift import FAULTS, NODES, Drift
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.policy.agents.resync import StatedFinding, StatedSet, differences
from nodetriage.controller.policy.findings import MAX_FINDINGS
from nodetriage.controller.policy.state import EventKind, FindingFact, NodeFacts, NodeState

BOOT = "b"
OFF_BUS = StatedFinding("gpu_xid", "GPU-1", "gpu_off_bus", Severity.CRITICAL, Confidence.STATE)


def _named(what: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(st.just(what), st.sampled_from(NODES))


HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(("break_", "mend")), st.sampled_from(NODES), st.integers(0, len(FAULTS) - 1)),
    st.sampled_from(("reboot", "forget", "drop", "drain", "resume", "undrain")).flatmap(_named),
    st.sampled_from((("send_all",), ("back_up",), ("restore",), ("lose_database",), ("act",), ("look",))),
)


@given(st.lists(HAPPENINGS, max_size=25))
@settings(max_examples=400)
def test_agent_controller_and_slurm_agree_after_one_round(history: list[tuple[object, ...]]) -> None:
    world = Drift()
    for what, *about in history:
        getattr(world, str(what))(*about)

    world.round()

    assert world.disagreements() == []


def test_without_stated_sets_a_lost_state_and_a_restored_database_drift_apart() -> None:
    world = Drift()
    world.break_("n1", 0)
    world.send_all()
    world.act()
    world.truth["n1"].clear()  # it is repaired while the agent is away and loses its state
    world.forget("n1")
    world.look()
    assert any("open are" in line for line in world.disagreements_now())

    world.round()
    assert world.disagreements() == []


def test_a_drain_of_after_the_backup_is_ours_again_and_its_id_is_not_given_to_another_node() -> None:
    world = Drift()
    world.back_up()
    world.break_("n1", 0)
    world.send_all()
    world.act()
    world.restore()
    world.break_("n2", 0)
    world.round()

    first, second = (world.state.nodes[name].drain for name in NODES)
    assert first is not None
    assert second is not None
    assert (first.theirs, first.incident, second.incident) == (False, "261201-1", "261201-e12-1")
    assert world.disagreements() == []


def test_acks_for_events_that_are_not_stored_raise_the_epoch_though_slurm_shows_nothing() -> None:
    world = Drift()
    world.back_up()
    world.break_("n1", 2)  # a warning drains nothing
    world.send_all()
    world.restore()
    world.round()
    assert world.state.epoch.number > 0


def test_a_restart_without_a_restore_raises_no_epoch() -> None:
    world = Drift()
    world.break_("n1", 0)
    world.send_all()
    world.act()
    world.back_up()
    world.restore()
    world.round()
    assert world.state.epoch.number == 0


def test_a_finding_with_a_newer_event_than_the_set_takes_into_account_is_left_alone() -> None:
    world = Drift()
    world.break_("n1", 0)
    world.send_all()
    node = world.state.nodes["n1"]
    assert differences(node, StatedSet("boot1", as_of_seq=1, checks={"c": True})) == ()
    (ended,) = differences(node, StatedSet("boot1", as_of_seq=2, checks={"c": True}))
    assert ended.kind is EventKind.CLEARED


def test_the_controllers_own_findings_are_no_part_of_an_agents_set() -> None:
    world = Drift()
    world.slurm.set_down("n1", "Not responding")
    world.look()
    world.lost()
    assert [f.fault for f in world.state.nodes["n1"].open_findings] == ["node_lost"]
    assert world.state_open("n1") == 0


def test_of_a_node_that_the_controller_does_not_know_everything_is_learned() -> None:
    found = differences(None, StatedSet(BOOT, 7, (OFF_BUS,)))
    assert [(c.kind, c.fault) for c in found] == [(EventKind.STARTED, ""), (EventKind.RAISED, "gpu_off_bus")]


def test_of_a_node_with_more_findings_than_are_kept_only_graver_ones_are_learned() -> None:
    """Without that, each comparison would store again what the one before pushed out."""

    def stated(number: int, severity: Severity) -> StatedFinding:
        return StatedFinding("gpu_xid", f"GPU-{number}", "gpu_xid_application", severity, Confidence.STATE)

    at = datetime(2026, 12, 1, tzinfo=UTC)

    def known(number: int) -> FindingFact:
        return FindingFact("gpu_xid", f"GPU-{number}", "gpu_xid_application", Severity.WARNING, at, at, 1, BOOT, number)

    full = NodeFacts(
        "n1", NodeState.HEALTHY, at, boot_id=BOOT, findings=tuple(known(k) for k in range(1, MAX_FINDINGS + 1))
    )
    others = (stated(1000, Severity.WARNING), stated(1001, Severity.CRITICAL))
    told = StatedSet(BOOT, 500, others, left_out=9)
    assert [c.component for c in differences(full, told)] == ["GPU-1001"]
    room = replace(full, findings=full.findings[:-1])
    assert [c.component for c in differences(room, told)] == ["GPU-1000", "GPU-1001"]
