"""How many outages of a node fall into one stretch of days: published lemon fleets are described so."""

import numpy as np
import polars as pl


def most_within(starts: pl.DataFrame, days: float) -> pl.DataFrame:
    """The most starts of each node in any stretch of `days` days. `starts` is node, start_day; gives node, most."""
    rows = [
        (str(key[0]), _most(np.sort(group["start_day"].to_numpy()), days)) for key, group in starts.group_by("node")
    ]
    return pl.DataFrame(rows, schema={"node": pl.String, "most": pl.Int64}, orient="row").sort("node")


def _most(sorted_days: np.ndarray, days: float) -> int:
    after = np.searchsorted(sorted_days, sorted_days + days, side="right")
    return int((after - np.arange(sorted_days.size)).max(initial=0))
