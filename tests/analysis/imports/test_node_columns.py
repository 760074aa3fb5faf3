"""Columns of node lists."""

import polars as pl

from nodetriage.analysis.imports.node_columns import expand_column


def test_a_column_keeps_its_order_and_counts_what_cannot_be_expanded() -> None:
    lists = pl.Series("nodes", ["n2", "n[1-2]", None, "n[1-", "None assigned", " n3 "])
    names, bad = expand_column(lists)
    assert names.to_list() == [["n2"], ["n1", "n2"], None, None, [], ["n3"]]
    assert bad == 1
