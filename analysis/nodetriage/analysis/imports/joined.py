"""The jobs of several files as one table."""

from collections.abc import Sequence

import polars as pl

from nodetriage.analysis.identity import SHARED_ID, told_apart
from nodetriage.analysis.tables import JOBS, ONE_RUN, Imported, Problems, empty, numbered


def joined_jobs(frames: Sequence[pl.DataFrame]) -> Imported:
    """Sound jobs of several files as one table: a run that two files have is one, and attempts count through all."""
    if len(frames) < 2:
        return Imported(frames[0] if frames else empty(JOBS))
    together = pl.concat(frames).sort("end_at", nulls_last=False, maintain_order=True)
    once = together.unique([c for c in ONE_RUN if c != "attempt"], keep="last", maintain_order=True)
    twice = together.height - once.height
    runs, shared = told_apart(once.sort("start_at", "job_id", maintain_order=True))
    anew = numbered(runs.with_columns(pl.lit(None, dtype=pl.Int32).alias("attempt")))
    kept, left_out = {SHARED_ID: shared}, {"the same run in two files": twice}
    return Imported(anew, Problems(*({k: n for k, n in counts.items() if n} for counts in (kept, left_out))))
