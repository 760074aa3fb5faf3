"""The seven states of a node and the ten ways between them (specification R55), and a way back from Retired."""

import itertools
from datetime import UTC, datetime

import pytest

from nodetriage.controller.policy.state import NEXT, FleetState, NodeFacts, NodeState
from nodetriage.controller.policy.unit_of_work import IllegalTransition, UnitOfWork

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ALLOWED = {
    ("BurnIn", "Healthy"),
    ("BurnIn", "Repair"),
    ("Healthy", "Suspect"),
    ("Healthy", "Lemon"),
    ("Suspect", "Healthy"),
    ("Suspect", "Drained"),
    ("Drained", "Repair"),
    ("Repair", "BurnIn"),
    ("Repair", "Retired"),
    ("Lemon", "Repair"),
    ("Retired", "BurnIn"),  # an operator retired the wrong node
}
PAIRS = list(itertools.product(NodeState, NodeState))


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_a_node_moves_only_as_the_specification_allows(before: NodeState, after: NodeState) -> None:
    work = UnitOfWork(FleetState(), NOW)
    node = NodeFacts("n1", before, NOW)
    if (before, after) in ALLOWED:
        moved = work.move(node, after, cause="because", actor="olga")
        assert moved.state is after
        (told,) = work.step().transitions
        assert (told.before, told.after, told.cause, told.actor, told.at) == (before, after, "because", "olga", NOW)
    else:
        with pytest.raises(IllegalTransition, match=f"n1: {before} -> {after}"):
            work.move(node, after, cause="because")
        assert work.step().transitions == ()


def test_every_state_has_a_way_on_and_only_burn_in_follows_retired() -> None:
    assert all(NEXT[state] for state in NodeState)
    assert NEXT[NodeState.RETIRED] == {NodeState.BURN_IN}
    assert len(PAIRS) == 49


def test_a_path_is_logged_step_by_step() -> None:
    work = UnitOfWork(FleetState(), NOW)
    work.move(NodeFacts("n1", NodeState.HEALTHY, NOW), NodeState.SUSPECT, NodeState.DRAINED, cause="critical")
    assert [(t.before, t.after) for t in work.step().transitions] == [("Healthy", "Suspect"), ("Suspect", "Drained")]


def test_working_out_a_turn_leaves_the_state_it_began_with_alone() -> None:
    before = FleetState(nodes={"n1": NodeFacts("n1", NodeState.HEALTHY, NOW)})
    work = UnitOfWork(before, NOW)
    work.move(before.nodes["n1"], NodeState.SUSPECT, cause="x")
    assert before.nodes["n1"].state is NodeState.HEALTHY
    assert work.step().state.nodes["n1"].state is NodeState.SUSPECT
