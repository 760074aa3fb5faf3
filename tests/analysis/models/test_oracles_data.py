"""The rows of oracles.tsv that were counted in published data.

The trace of InfiniteHBD is part of the project. LANL's failures (D21-D31) and Titan's GPU lives (D41-D50)
may be had from their publishers but carry no licence that lets them into it: their tests exist only where
NODETRIAGE_DATA names a folder with lanl_failures/ and titan_gpu_life/, each with the publisher's file in it.
"""

import csv
import functools
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stretches import most_within

from nodetriage.analysis.history import outages
from nodetriage.analysis.models import burst, poisson

HERE = Path(__file__).parents[1]
TABLE = (HERE / "oracles.tsv").read_text(encoding="utf-8").splitlines()
ROWS = {r["id"]: r for r in csv.DictReader(TABLE, delimiter="\t")}
LAST_DAY = 348.9798
OUTSIDE = os.environ.get("NODETRIAGE_DATA")


@functools.cache
def trace() -> list[dict[str, Any]]:
    with lzma.open(HERE / "data" / "infinitehbd" / "fault_trace.json.xz") as file:
        loaded: list[dict[str, Any]] = json.load(file)
    return loaded


@functools.cache
def infinitehbd() -> pl.DataFrame:
    """Starts matched with the next end of the same fault on the same node."""
    opened: dict[tuple[str, str], list[float]] = {}
    rows = []
    for event in trace():
        key = (event["node_id"], json.dumps(event["fault_type"], sort_keys=True))
        if event["event_type"] == "fault_start":
            opened.setdefault(key, []).append(event["event_time"])
        else:
            level = event["fault_type"]["Level"]
            rows.append((event["node_id"], opened[key].pop(0), event["event_time"], level))
    assert not any(opened.values())
    return pl.DataFrame(rows, schema=["node", "start_day", "end_day", "level"], orient="row")


def repeaters(faults: pl.DataFrame, least: int) -> int:
    return most_within(faults.select("node", "start_day"), 28.0).filter(pl.col("most") >= least).height


def rate(faults: pl.DataFrame) -> float:
    return poisson.rate("", faults.height, 400 * 348 / 1000, "per 1000 node-days").value


INFINITEHBD: dict[str, Callable[[pl.DataFrame], Any]] = {
    "D01": lambda f: f.height * 2,
    "D02": lambda f: outages.downtime(f).outages,
    "D03": lambda f: f["node"].n_unique(),
    "D04": rate,
    "D05": lambda f: rate(f.filter(pl.col("level") == "Hardware Failure")),
    "D06": lambda f: outages.downtime(f).mean_days,
    "D07": lambda f: outages.downtime(f).median_days,
    "D08": lambda f: outages.downtime(f).longest_days,
    "D09": lambda f: outages.mean_open(f, 0, LAST_DAY),
    "D10": outages.most_open,
    "D11": lambda f: outages.availability(f, 400, LAST_DAY - 348, LAST_DAY),
    "D12": lambda f: burst.interarrival_cv(f["start_day"].to_numpy()),
    "D13": lambda f: repeaters(f, 3),
    "D14": lambda f: repeaters(f, 5),
    "D15": lambda f: f.filter(pl.col("start_day").is_between(60, 90, closed="left")).height,
}


LANL_CAUSES = {
    "D22": "Hardware",
    "D23": "Software",
    "D24": "Undetermined",
    "D25": "Network",
    "D26": "Facilities",
    "D27": "Human Error",
}


@functools.cache
def lanl() -> list[dict[str, str]]:
    path = Path(OUTSIDE or "", "lanl_failures", "LA-UR-05-7318-failure-data-1996-2005.csv.xz")
    return list(csv.DictReader(io.StringIO(lzma.open(path).read().decode("latin-1"))))


@functools.cache
def lanl_figures() -> dict[str, float]:
    rows = lanl()
    system = [r for r in rows if r["System"] == "20"]
    down = [float(r["Down Time"]) / 1440 for r in rows]
    table = pl.DataFrame({"node": [r["nodenumz"] for r in rows], "start_day": 0.0, "end_day": down})
    return {
        "D21": len(rows),
        **{i: sum(r[cause] != "" for r in rows) for i, cause in LANL_CAUSES.items()},
        "D28": sum(not any(r[c] for c in LANL_CAUSES.values()) for r in rows),
        "D29": outages.downtime(table).mean_days * 1440,
        "D30": len(system),
        "D31": sum(r["nodenumz"] == "0" for r in system),
    }


@functools.cache
def titan_lives() -> pl.DataFrame:
    with lzma.open(Path(OUTSIDE or "", "titan_gpu_life", "gc_full.csv.xz")) as file:
        return pl.read_csv(file.read(), infer_schema_length=None)


@functools.cache
def titan_figures() -> dict[str, float]:
    lives = titan_lives()
    dated = lives.filter(pl.col("insert").is_not_null() & pl.col("duration").is_not_null())
    gpu_days = float(dated["duration"].sum()) / 86_400
    events = lives.filter(pl.col("event").is_not_null() & (pl.col("event") != ""))
    per_serial = events.group_by("SN").len()["len"]
    dated_events = events.filter(pl.col("insert").is_not_null())
    removed = pl.col("remove").str.to_datetime(strict=False).dt.epoch("s") / 86_400
    starts = events.select(pl.col("SN").alias("node"), removed.alias("start_day"))
    return {
        "D41": lives.height,
        "D42": events.filter(pl.col("event") == "DBE").height,
        "D43": events.filter(pl.col("event") == "OTB").height,
        "D44": gpu_days / 365.25,
        "D45": dated_events.height / gpu_days * 1000,
        "D46": int((dated_events.group_by("SN").len()["len"] >= 2).sum()),
        "D47": int((per_serial >= 2).sum()),
        "D48": repeaters(starts, 3),
        "D49": repeaters(starts, 5),
        "D50": int(max(per_serial)),
    }


def figure(oracle: str) -> float:
    if oracle in INFINITEHBD:
        return float(INFINITEHBD[oracle](infinitehbd()))
    return lanl_figures()[oracle] if oracle < "D41" else titan_figures()[oracle]


@pytest.mark.parametrize("oracle", [i for i in ROWS if i in INFINITEHBD or (OUTSIDE and i.startswith("D"))])
def test_published_data_counts_as_the_oracle(oracle: str) -> None:
    row = ROWS[oracle]
    kind, _, amount = row["tolerance"].partition("=")
    assert figure(oracle) == pytest.approx(float(row["expected"]), **{"rel": 0.0, "abs": 0.0, kind: float(amount)})


def test_the_infinitehbd_trace_is_bursty_and_its_interval_is_widened() -> None:
    starts = infinitehbd()["start_day"].to_numpy()
    found = burst.test(starts, np.full(349, 400.0))
    assert found.bursty
    assert found.widening > 3
    plain, wide = poisson.event_interval(584), poisson.event_interval(584, dispersion=found.widening)
    assert wide[0] < plain[0] < plain[1] < wide[1]


def test_each_trace_of_the_oracles_is_here_or_named_as_not_shipped() -> None:
    assert {i for i in ROWS if i.startswith("D")} == {
        *INFINITEHBD,
        *(f"D{n}" for n in range(21, 32)),
        *(f"D{n}" for n in range(41, 51)),
    }
