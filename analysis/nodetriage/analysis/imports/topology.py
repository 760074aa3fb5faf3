"""Where nodes stand, from a file of the site's own: a column `node`, and one for each way of grouping them."""

from pathlib import Path

import polars as pl

from nodetriage.analysis.imports.node_columns import expand_column
from nodetriage.analysis.tables import TableError


def read(path: Path) -> pl.DataFrame:
    """CSV or Parquet: node:String and each grouping:String, such as rack and switch; one row a node.

    `node` may be a Slurm node list, which stands for its nodes. Raises TableError.
    """
    try:
        if path.read_bytes()[:4] == b"PAR1":
            frame = pl.read_parquet(path)
        else:
            frame = pl.read_csv(path, infer_schema=False, encoding="utf8-lossy")
        frame = frame.cast(pl.String)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TableError(f"{path}: neither CSV nor Parquet: {error}") from error
    if "node" not in frame.columns or frame.width < 2:
        raise TableError(
            f"{path}: expected a column node and at least one to group by, found: {', '.join(frame.columns)}"
        )
    named = frame.filter(pl.col("node").is_not_null())
    listed = named.with_columns(expand_column(named["node"])[0].alias("node"))
    rows = listed.explode("node", empty_as_null=True).filter(pl.col("node").is_not_null())
    twice = rows.filter(pl.col("node").is_duplicated())["node"].unique().sort()
    if twice.len():
        raise TableError(f"{path}: {twice[0]} has more than one row")
    return rows


def levels(topology: pl.DataFrame) -> list[str]:
    """The ways of grouping, in the file's order."""
    return [c for c in topology.columns if c != "node"]
