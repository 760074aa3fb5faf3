"""Node lists as Slurm writes them, and as it never would."""

import time

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.controller.slurm.node_list import MOST_NODES, expand


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("rack[1-2]n[01-02]", ["rack1n01", "rack1n02", "rack2n01", "rack2n02"]),
        ("n[1,3-4],login1", ["n1", "n3", "n4", "login1"]),
        ("gpu-a.cluster", ["gpu-a.cluster"]),
        ("None assigned", []),
        ("", []),
    ],
)
def test_a_list_of_slurm_gives_its_nodes(text: str, nodes: list[str]) -> None:
    assert sorted(expand(text) or ()) == sorted(nodes)


@pytest.mark.parametrize(
    "text", ["n[1-", "n[3-1]", "n[]", "[1-2]", "a b", "n1,,n2", "@group", "n1!n2", "n[1-2]&n1", "-"]
)
def test_what_is_no_list_is_not_taken_for_an_empty_one(text: str) -> None:
    assert expand(text) is None


def test_a_list_that_would_explode_is_refused_at_once() -> None:
    began = time.monotonic()
    assert expand("a[1-9999]b[1-9999]c[1-9999]") is None
    assert expand("n[1-99999999999999]") is None
    assert time.monotonic() - began < 30
    assert len(expand("n[1-1000]") or ()) == 1000 < MOST_NODES


@given(st.sets(st.tuples(st.sampled_from(["n", "gpu-", "r1n"]), st.integers(0, 500)), min_size=1, max_size=60))
def test_what_clustershell_folds_is_expanded_back(numbers: set[tuple[str, int]]) -> None:
    names = {f"{prefix}{number}" for prefix, number in numbers}
    folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    assert set(expand(folded) or ()) == names


@given(st.text(alphabet="n12[]-,@!& \n\x00é", max_size=30))
def test_no_text_raises(text: str) -> None:
    assert expand(text) is None or all(expand(text) or ("x",))
