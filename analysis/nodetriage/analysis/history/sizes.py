"""Classes of job sizes for tables that split by size: 1-8, 9-64, ... GPUs."""

import polars as pl

# Upper ends, GPUs; the paper's own split begins above one node of 8.
_TOPS = (8, 64, 128, 256, 512, 1024, 2048, 4096)

UNKNOWN = "unknown"


def size_class() -> pl.Expr:
    """The class of a row's `gpus`, as text that sorts by `size_order`."""
    chosen = pl.when(pl.col("gpus").is_null()).then(pl.lit(UNKNOWN)).when(pl.col("gpus") <= 0).then(pl.lit("0"))
    low = 1
    for top in _TOPS:
        chosen = chosen.when(pl.col("gpus") <= top).then(pl.lit(f"{low}-{top}"))
        low = top + 1
    return chosen.otherwise(pl.lit(f"over {_TOPS[-1]}")).alias("gpus_class")


def size_order(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with its `gpus_class` rows in order of size."""
    first = pl.col("gpus_class").str.extract(r"(\d+)").cast(pl.Int64).fill_null(1 << 40)
    return frame.sort([first, pl.col("gpus_class").str.starts_with("over")])
