"""Columns of Slurm's node lists to columns of names: each list that is not one plain name is expanded once."""

import polars as pl

from nodetriage.controller.slurm.node_list import NO_LIST, expand

_PLAIN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$"


def expand_column(lists: pl.Series) -> tuple[pl.Series, int]:
    """A column of node lists as a column of lists of names, and how many rows cannot be expanded (they become null)."""
    column = lists.alias("list").to_frame().with_columns(pl.col("list").str.strip_chars())
    plain = pl.col("list").str.contains(_PLAIN) & ~pl.col("list").is_in(NO_LIST)
    others = column.filter(~plain)["list"].drop_nulls().unique()
    expanded = [expand(text) for text in others]
    known = pl.DataFrame(
        {"list": others, "names": [list(e) if e is not None else None for e in expanded]},
        schema={"list": pl.String, "names": pl.List(pl.String)},
    )
    rows = column.join(known, on="list", how="left", maintain_order="left")
    names = rows.select(pl.when(plain).then(pl.concat_list("list")).otherwise(pl.col("names")).alias(lists.name))
    bad = int((names.to_series().is_null() & column["list"].is_not_null()).sum())
    return names.to_series(), bad
