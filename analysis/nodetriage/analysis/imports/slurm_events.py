"""Outages as Slurm's accounting knows them: `sacctmgr -P show event`, a row for each time that a node was down."""

import re
from datetime import datetime
from pathlib import Path

import polars as pl

from nodetriage.analysis.imports.sacct import time_of
from nodetriage.analysis.tables import OUTAGES, Imported, Problems, TableError, sound_outages

COMMAND = "TZ=UTC sacctmgr -P show event start=2026-01-01 format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"

_NEEDED = ("nodename", "timestart", "timeend", "state")
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|NO_RESPOND", re.IGNORECASE)


def is_events(head: bytes) -> bool:
    """Whether a file begins as this table does."""
    first = head.lstrip().split(b"\n", 1)[0].lower()
    return b"nodename" in first and b"timestart" in first


def read_slurm_events(path: Path, now: datetime, zone: str = "UTC") -> Imported:
    """A `drained` where a node went down or into drain, a `resumed` at the end; maintenance is `planned`.

    Rows without a node are the cluster's own and are left out. Raises TableError where columns are missing.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    names = [n.strip().lower() for n in lines[0].lstrip("\ufeff").split("|")] if lines else []
    if missing := [n for n in _NEEDED if n not in names]:
        raise TableError(f"{path}: no column {', '.join(missing)}, divided by |; run: {COMMAND}")
    left_out: dict[str, int] = {}
    rows = []
    for line in (text for text in lines[1:] if text.strip()):
        row = _row(line.split("|"), names)
        kind = "too few fields" if row is None else "about the cluster, not a node" if not row["nodename"] else None
        if kind is not None:
            left_out[kind] = left_out.get(kind, 0) + 1
        elif row is not None:
            rows.append(row)
    return _outages(pl.DataFrame(rows, schema=dict.fromkeys([*_NEEDED, "reason"], pl.String)), now, zone, left_out)


def _row(fields: list[str], names: list[str]) -> dict[str, str] | None:
    """One row by name; a delimiter in the reason, which people write, is put back."""
    extra = len(fields) - len(names)
    if extra < 0 or (extra > 0 and "reason" not in names):
        return None
    if extra:
        at = names.index("reason")
        fields = [*fields[:at], " ".join(fields[at : at + extra + 1]), *fields[at + extra + 1 :]]
    found = dict(zip(names, (f.strip() for f in fields), strict=True))
    return {name: found.get(name, "") for name in (*_NEEDED, "reason")}


def _outages(rows: pl.DataFrame, now: datetime, zone: str, left_out: dict[str, int]) -> Imported:
    planned = pl.col("state").str.to_uppercase().str.contains("MAINT|PLANNED|REBOOT")
    down = pl.col("state").str.contains(f"(?i){_DOWN.pattern}") & ~planned
    known = rows.filter(down | planned)
    if other := rows.height - known.height:
        left_out["a state in which the node is not out"] = other
    kind = pl.when(planned).then(pl.lit("planned")).otherwise(pl.lit("drained"))
    began = known.select(
        pl.col("nodename").alias("node"), time_of("timestart", zone).alias("at"), kind.alias("kind"), _cause()
    )
    ended = known.filter(down).select(
        pl.col("nodename").alias("node"),
        time_of("timeend", zone).alias("at"),
        pl.lit("resumed").alias("kind"),
        _cause(),
    )
    both = pl.concat([began, ended.filter(pl.col("at").is_not_null())]).select(*OUTAGES)
    sound = sound_outages(both, now)
    return Imported(sound.frame, sound.problems + Problems(left_out=left_out))


def _cause() -> pl.Expr:
    return pl.col("reason").alias("cause")
