"""Columns of node lists."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis.imports.node_columns import expand_column
from nodetriage.controller.slurm import node_list


def test_a_column_keeps_its_order_and_counts_what_cannot_be_expanded() -> None:
    lists = pl.Series("nodes", ["n2", "n[1-2]", None, "n[1-", "None assigned", " n3 "])
    names, bad = expand_column(lists)
    assert names.to_list() == [["n2"], ["n1", "n2"], None, None, [], ["n3"]]
    assert bad == 1


ranges = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=6)


@given(st.sampled_from(("n", "rack1-n", "gpu007.x")), ranges)
def test_the_quick_way_gives_what_the_library_gives(prefix: str, made: list[tuple[int, int, int]]) -> None:
    parts = [f"{a:0{w}d}" if not more else f"{a:0{w}d}-{a + more:0{w}d}" for a, more, w in made]
    text = f"{prefix}[{','.join(parts)}]"
    names, _ = expand_column(pl.Series("nodes", [text]))
    (found,) = names.to_list()
    assert found == (None if (right := node_list.expand(text)) is None else list(right))
