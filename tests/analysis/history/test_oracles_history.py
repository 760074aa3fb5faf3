"""The rows of oracles.tsv that come from job history, each played as a small history of its own."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.history import attribution, cascades, cooccurrence, false_positives, history, losses, observed
from nodetriage.analysis.history.attribution import Attribution
from nodetriage.analysis.lemons import score, signals
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, TIME

TABLE = (Path(__file__).parents[1] / "oracles.tsv").read_text(encoding="utf-8").splitlines()
ROWS = {r["id"]: r for r in csv.DictReader(TABLE, delimiter="\t")}
TEN = datetime(2025, 6, 2, 10, 0, tzinfo=UTC)
NOW = datetime(2025, 9, 1, tzinfo=UTC)
FAULTS = {"pcie": "pcie_uncorrectable", "xid79": "gpu_off_bus", "ipmi": "bmc_power_supply"}


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def job(start_min: float, run_min: float, state: str, gpus: int = 8, **columns: Any) -> dict[str, Any]:
    start = TEN + minutes(start_min)
    given = {"job_id": "1", "attempt": 1, "nodes": ["n0"], "node_count": -(-gpus // 8), "gpus": gpus, "state": state}
    return {**given, "submit_at": start, "start_at": start, "end_at": start + minutes(run_min), **columns}


def event(node: str, at_min: float, fault: str, xid: int | None = None, severity: int = 4) -> dict[str, Any]:
    at = TEN + minutes(at_min)
    return {"node": node, "at": at, "kind": "raised", "check": fault, "fault": fault, "severity": severity, "xid": xid}


def table(rows: list[dict[str, Any]], schema: Any) -> pl.DataFrame:
    return pl.DataFrame([{**dict.fromkeys(schema), **row} for row in rows], schema=dict(schema), orient="row")


def past(jobs: list[dict[str, Any]], *events: dict[str, Any], repaired: tuple[str, ...] = ()) -> history.History:
    outages = [{"node": "n0", "at": TEN, "kind": "repaired", "cause": cause} for cause in repaired]
    return history.of(table(jobs, JOBS), table(list(events), EVENTS), NOW, outages=table(outages, OUTAGES))


def observed_ettr() -> float:
    two = past(
        [
            job(0, 600, "NODE_FAIL", submit_at=TEN - minutes(15)),
            job(600, 300, "COMPLETED", attempt=2),
        ]
    )
    (row,) = observed.logical_runs(two, observed.Observe(least_training_h=0)).to_dicts()
    assert row["wall_h"] * 60 == pytest.approx(915)
    return float(row["ettr"])


def amplification() -> float:
    """Two of a thousand jobs fail, and are so large that they hold 18.7 % of GPU time."""
    failed_gpus = 187 * 998 / 813 / 2
    jobs = [job(i, 60, "COMPLETED", 1000, job_id=f"c{i}") for i in range(998)]
    jobs += [job(i, 60, "NODE_FAIL", round(failed_gpus * 1000), job_id=f"f{i}") for i in range(2)]
    found = attribution.attribute(past(jobs)).infrastructure
    all_gpu_h = history.started(past(jobs))["gpu_h"].sum()
    return float(100 * found["gpu_h"].sum() / all_gpu_h / (100 * found.height / len(jobs)))


def lemon_share(flagged: int, nodes: int) -> float:
    share = score.score([str(n) for n in range(flagged)], [], nodes).flagged_share
    return 100 * (share or 0.0)


def relative_reduction() -> float | None:
    effect = score.Effect(14, 100, 4, 100)
    assert effect.points == pytest.approx(10)
    return effect.relative


def denominator() -> int:
    counts = {
        "gpu": 11,
        "dimm": 8,
        "pcie": 6,
        "eud": 3,
        "unknown": 3,
        "nic": 3,
        "bios": 2,
        "psu": 1,
        "optics": 1,
        "cpu": 1,
    }
    found = score.root_causes(past([], repaired=tuple(c for c, n in counts.items() for _ in range(n))))
    assert {round(100 * s, 1) for s in found["share"]} == {float(s) for s in ROWS["L06"]["inputs"].split(",")}
    return int(found["repairs"].sum())


def right_without_flagging_any() -> float:
    nothing = score.score([], [str(n) for n in range(12)], 1000)
    assert (nothing.precision, nothing.recall) == (None, 0)
    return 1 - nothing.lemons / nothing.nodes


def distinct_xids() -> int:
    seen = [event("n0", i, "gpu_off_bus", xid) for i, xid in enumerate((79, 79, 79, 31))]
    past_one = past([job(0, 60, "COMPLETED")], *seen)
    facts = signals.facts(past_one, attribution.attribute(past_one))
    return int(signals.signals(facts, TEN + minutes(60))["xid_cnt"].item())


def triple_above_pair() -> str:
    """Of 100 PCIe failures 37 have Xid 79 too. However IPMI falls, all three cannot be more than that."""
    jobs = [job(0, 60, "FAILED", job_id=str(i), nodes=[f"n{i}"]) for i in range(100)]
    events = [event(f"n{i}", 58, FAULTS["pcie"]) for i in range(100)]
    events += [event(f"n{i}", 59, FAULTS["xid79"]) for i in range(37)]
    events += [event(f"n{i}", 59, FAULTS["ipmi"]) for i in range(63)]
    found = attribution.attribute(past(jobs, *events))
    pairs = cooccurrence.matrix(found)
    categories = dict(found.causes.select("fault", "category").unique().iter_rows())
    pair = pairs.filter(
        (pl.col("category") == categories[FAULTS["pcie"]]) & (pl.col("with_category") == categories[FAULTS["xid79"]])
    )["both"].item()
    all_three = " + ".join(sorted(categories[f] for f in FAULTS.values()))
    triple = cooccurrence.combinations(found).filter(pl.col("categories") == all_three)["jobs"].item()
    assert pair == 37
    return "impossible" if triple <= pair else "possible"


def lost_gpu_h(ended: dict[str, Any]) -> float:
    runs = history.started(past([ended]))
    return float(runs.select(cascades.lost_gpu_h(30.0)).item())


def second_order_share() -> float | None:
    """A job of 1,024 GPUs fails 35 times; each return pushes out 25 jobs of 8 GPUs: 7,000 GPUs in all."""
    jobs = []
    for attempt in range(36):
        state = "NODE_FAIL" if attempt < 35 else "COMPLETED"
        jobs.append(job(attempt * 60, 59, state, 1024, job_id="big", attempt=attempt + 1))
        if attempt:
            jobs += [
                job(attempt * 60 - 300, 300, "PREEMPTED", job_id=f"{attempt}-{n}", preempted_by="big", nodes=[f"p{n}"])
                for n in range(25)
            ]
    loop = past(jobs)
    found = attribution.attribute(loop)
    total = losses.by_size(loop, found, cascades.linked(loop, found)).tail(1)
    assert total["preempted"].item() == 875
    share = total["second_order_share"].item()
    return None if share is None else float(share)


def completed_with_a_failed_check(count: int) -> pl.DataFrame:
    jobs = [job(0, 60, "COMPLETED", job_id=str(i), nodes=[f"n{i}"]) for i in range(1000)]
    events = [event(f"n{i}", 30, "mount_stale") for i in range(count)]
    return false_positives.false_positives(past(jobs, *events)).per_check.head(1)


def false_positive_rate() -> str:
    nine, ten = completed_with_a_failed_check(9), completed_with_a_failed_check(10)
    assert ten["over_budget"].item()
    return f"{nine['share'].item():g} {'fail' if nine['over_budget'].item() else 'pass'}"


def window(settings: Attribution) -> str:
    first, last = attribution.window(settings)
    ran = pl.DataFrame({"start_at": [TEN], "end_at": [TEN + minutes(120)]}).cast(
        dict.fromkeys(("start_at", "end_at"), TIME)
    )
    low, high = ran.select(first.alias("first"), last.alias("last")).row(0)
    for moment, counts in ((low, 1), (high, 1), (low - minutes(1 / 60), 0), (high + minutes(1 / 60), 0)):
        at = (moment - TEN) / minutes(1)
        found = attribution.attribute(past([job(0, 120, "FAILED")], event("n0", at, "ib_link_down")), settings)
        assert found.infrastructure.height == counts
    return f"{low:%H:%M}..{high:%H:%M}"


FIGURES: dict[str, Callable[[], Any]] = {
    "X22": observed_ettr,
    "L02": amplification,
    "L03": lambda: lemon_share(24, 2000),
    "L04": lambda: lemon_share(16, 1000),
    "L05": relative_reduction,
    "L06": denominator,
    "L08": right_without_flagging_any,
    "L09": distinct_xids,
    "L10": triple_above_pair,
    "L13": lambda: lost_gpu_h(job(0, 300, "NODE_FAIL", 1024)),
    "L14": lambda: lost_gpu_h(job(0, 10, "PREEMPTED", 8)),
    "L15": second_order_share,
    "L17": false_positive_rate,
    "L18": lambda: window(Attribution()),
    "L19": lambda: window(Attribution(anchor="start")),
}


@pytest.mark.parametrize("oracle", sorted(FIGURES))
def test_the_history_gives_the_oracles_figure(oracle: str) -> None:
    row = ROWS[oracle]
    kind, _, amount = row["tolerance"].partition("=")
    got = FIGURES[oracle]()
    if kind == "exact":
        assert got == row["expected"]
    else:
        assert got == pytest.approx(float(row["expected"]), **{"rel": 0.0, "abs": 0.0, kind: float(amount)})


def test_every_lemon_and_attribution_row_is_here_or_among_the_models() -> None:
    among_the_models = {"L07", "L11", "L12"}
    assert {i for i in ROWS if i.startswith("L")} | {"X22"} == set(FIGURES) | among_the_models
