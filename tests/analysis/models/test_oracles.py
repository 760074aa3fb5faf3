"""The models against oracles.tsv, row by row, by id. Its `expected` is right; what the sources print is beside it.

Rows D* are in test_oracles_data.py, rows about job history in test_oracles_history.py.
"""

import csv
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.history import rates, rates_over_time
from nodetriage.analysis.history.exposure import Window
from nodetriage.analysis.models import (
    checkpoint,
    ettr,
    ettr_trials,
    goodput,
    interruptions,
    mttf,
    poisson,
    retention,
    solve,
    spares,
    straggler,
)
from nodetriage.analysis.models.figure import Figure, OutOfDomain
from nodetriage.analysis.models.interruptions import Run
from nodetriage.analysis.simulate.planted import lemon_hazard_ratio

HERE = Path(__file__).parents[1]
TABLE = (HERE / "oracles.tsv").read_text(encoding="utf-8").splitlines()
ROWS = {r["id"]: r for r in csv.DictReader(TABLE, delimiter="\t")}
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
FAILED = pl.col("state") == "NODE_FAIL"

IN_HISTORY = {
    *("X22", "L02", "L03", "L04", "L05", "L06", "L08", "L09", "L10", "L13", "L14", "L15", "L17", "L18", "L19")
}

# Rows that nothing here computes, and why. A row of status "constant" is a policy number and needs no reason.
NOT_COMPUTED = {
    "T23": "a plain sum of two counts in the source",
    "S07": "step times of ranks are not an input of this program",
    "S11": "a share of two counts in the source",
    "S12": "a plain sum of the counts in the source",
    "S13": "a plain sum of the percentages in the source",
    "S15": "a ratio of two times in the source",
    "S16": "a share of two counts in the source",
}


def rf_per_1000_node_days(nodes: float, mttf_h: float) -> float:
    """The rate that a job's MTTF implies: 24,000 / (N rf) is its own inverse."""
    return mttf.theory_h(nodes, mttf_h)


def inputs_of(text: str) -> dict[str, float]:
    """`nodes=128;w_min=5;dt=opt` as numbers; words are left out, rates come per 1000 node-days."""
    found = {}
    for key, value in re.findall(r"(\w+)=([-\d.eE]+)(?=;|$)", text):
        found[key] = float(value)
    if "rf_per_node_day" in found:
        found["rf"] = found["rf_per_node_day"] * 1000
    return found


def run_of(i: dict[str, float]) -> Run:
    return Run(
        nodes=i["nodes"],
        rf_per_1000_node_days=i["rf"],
        restart_min=i["u0_min"],
        checkpoint_write_min=i["w_min"],
        checkpoint_interval_min=i["dt_min"],
        queue_min=i.get("q_min", 0.0),
        productive_min=i.get("R_min", math.inf),
    )


def value(figure: Figure | solve.Unreachable) -> float:
    assert isinstance(figure, Figure)
    return figure.value


def jobs(*rows: tuple[int, float, str, float]) -> pl.DataFrame:
    """(gpus, start hour, state, run hours) as a job table."""
    starts = [BEGIN + timedelta(hours=r[1]) for r in rows]
    return pl.DataFrame(
        {
            "gpus": [r[0] for r in rows],
            "node_count": [-(-r[0] // 8) for r in rows],
            "state": [r[2] for r in rows],
            "start_at": starts,
            "end_at": [s + timedelta(hours=r[3]) for s, r in zip(starts, rows, strict=True)],
        },
        schema_overrides={"start_at": pl.Datetime("us", "UTC"), "end_at": pl.Datetime("us", "UTC")},
    ).with_columns(nodes=pl.lit([], dtype=pl.List(pl.String)), gpus=pl.col("gpus").cast(pl.Int32))


def days(count: float) -> Window:
    return Window(BEGIN, BEGIN + timedelta(days=count))


def theory_h(i: dict[str, float]) -> float:
    return mttf.theory_h(i["nodes"], i["rf"])


def eq2(i: dict[str, float]) -> float:
    if "dt_min" in i:
        return ettr.equation_2(run_of(i)).value
    return ettr.equation_2_at_best(i["nodes"], i["rf"], i["u0_min"], i["w_min"]).value


def interval(i: dict[str, float]) -> float:
    return i["tau_min"] if "tau_min" in i else checkpoint.young_min(i["delta_min"], i["M_min"])


def first_order(i: dict[str, float]) -> goodput.FirstOrder:
    return goodput.first_order(interval(i), i["delta_min"], i["M_min"], i.get("R_min", 0.0))


def exact_goodput(i: dict[str, float]) -> float:
    return goodput.exact_goodput(interval(i), i["delta_min"], i["M_min"], i["R_min"]).value


# By quantity: what computes it from the row's own inputs.
BY_QUANTITY: dict[str, Callable[[dict[str, float]], Any]] = {
    "mttf_theory_h": theory_h,
    "mttf_theory_d": lambda i: theory_h(i) / 24,
    "mttf_theory_min": lambda i: theory_h(i) * 60,
    "rf_from_job_mttf_per_1000nd": lambda i: rf_per_1000_node_days(i["nodes"], i["mttf_h"]),
    "mtbf_h": lambda i: poisson.mean_time("", int(i["failures"]), i["days"] * 24, "h").value,
    "mtbf_min": lambda i: poisson.mean_time("", int(i["failures"]), i["days"] * 24, "h").value * 60,
    "failures_per_day": lambda i: poisson.rate("", int(i["failures"]), i["days"], "per day").value,
    "expected_failures": lambda i: mttf.expected_failures(i["nodes"], i["rf"], i["hours"]),
    "gamma_ci90_events": lambda i: poisson.event_interval(int(i["k"])),
    "ettr_eq1": lambda i: ettr.equation_1(run_of(i)).value,
    "ettr_exact (R/E[W])": lambda i: ettr.exact(run_of(i)).value,
    "ettr_monte_carlo (E[R/W])": lambda i: ettr_trials.play(run_of(i), runs=20_000, seed=7).ettr.value,
    "expected_interruptions (linearised)": lambda i: interruptions.linear(run_of(i)).value,
    "dt_opt_min": lambda i: ettr.optimal_interval_min(i["nodes"], i["rf"], i["w_min"]),
    "ettr_eq2": eq2,
    "w_needed_s": lambda i: value(solve.write_needed_min(i["nodes"], i["rf"], i["u0_min"], i["ettr"])) * 60,
    "rf_needed_per_1000nd": lambda i: value(
        solve.rate_needed_per_1000_node_days(i["nodes"], i["u0_min"], i["w_min"], i["ettr"])
    ),
    "uptime_fraction": lambda i: goodput.uptime(i["mtbf_min"], i["mttr_min"], i["lost_min"]).value,
    "young_min": lambda i: checkpoint.young_min(i["delta_min"], i["M_min"]),
    "daly_3term_min": lambda i: checkpoint.daly_min(i["delta_min"], i["M_min"]),
    "tau_exact_optimum_min": lambda i: checkpoint.optimum_min(i["delta_min"], i["M_min"]),
    "goodput_exact": exact_goodput,
    "goodput_first_order": lambda i: first_order(i).goodput.value,
    "waste_checkpoint": lambda i: first_order(i).checkpoint.value,
    "waste_rework": lambda i: first_order(i).rework.value,
    "waste_restart": lambda i: goodput.first_order(1.0, 0.0, i["M_min"], i["R_min"]).restart.value,
    "usd_per_day_saved": lambda i: goodput.usd_per_day(i["gpus"], i["usd_per_gpu_hour"], i["points"]).value,
    "straggler_emax_asymptotic_sigma": lambda i: straggler.asymptotic_maximum_sigmas(int(i["N"])).value,
    "straggler_emax_exact_sigma": lambda i: straggler.expected_maximum_sigmas(int(i["N"])).value,
    "p_avoid_all_slow": lambda i: straggler.all_avoid_slow_nodes(i["fraction"], int(i["nodes"])).value,
    "retention_K_guaranteed": lambda i: retention.copies_guaranteed(i["L_min"], i["tau_min"]).value,
    "spares_needed": lambda i: spares.needed(i["nodes"], i["rf"], i["mttr_d"], i["target"]).value,
    "repair_days_covered": lambda i: (
        spares.repair_days_covered(int(i["spares"]), i["nodes"], i["rf"], i["target"]).value
    ),
}


def observed_rf(failures: float, node_days: float) -> Figure:
    return poisson.rate("r_f", int(failures), node_days / 1000, rates.PER_1000)


def three_jobs() -> rates.SizeBucket:
    table = jobs((1024, 0, "NODE_FAIL", 10), (1024, 20, "NODE_FAIL", 20), (1024, 50, "COMPLETED", 40))
    (only,) = rates.by_size(table, days(10), FAILED)
    return only


def rolling_rate() -> float:
    daily = [(800, 24.0 * d, "NODE_FAIL", 23.999999) for d in range(30)]
    row = rates_over_time.rolling(jobs(*daily), days(30), FAILED, pl.lit("any"))
    return round(row["per_1000_node_days"].item(), 4)  # a run lasts a hair less than its day


def is_128_in_rf() -> str:
    found = rates.fleet_rate(jobs((128, 0, "NODE_FAIL", 10)), days(1), FAILED)
    return "yes" if found.failures else "no"


def refused(i: dict[str, float]) -> str:
    with pytest.raises(OutOfDomain, match="expected below 1"):
        ettr.equation_2(run_of(i))
    return "error or 0"


def young_against_daly_points() -> float:
    gaps = []
    for delta, restart, mtbf in ((5, 15, 186), (0.5, 15, 186), (0.5, 3, 186), (0.5, 3, 23.25), (0.5, 15, 23.25)):
        of = [
            goodput.exact_goodput(tau, delta, mtbf, restart).value
            for tau in (checkpoint.young_min(delta, mtbf), checkpoint.daly_min(delta, mtbf))
        ]
        gaps.append(abs(of[0] - of[1]) * 100)
    return max(gaps)


# By id, where the inputs are words.
BY_ID: dict[str, Callable[[dict[str, float]], Any]] = {
    "T13": lambda i: rf_per_1000_node_days(1, 7.9) / rf_per_1000_node_days(1, 47.7 * 24),
    "T15": lambda i: observed_rf(i["failures"], i["days"] * i["nodes"]).value,
    "T20": lambda i: mttf.expected_failures(mttf.nodes_for(100_000), mttf.PUBLISHED["target"][0], 24),
    "T21": lambda i: rf_per_1000_node_days(i["nodes"], i["mtbf_d"] * 24),
    "T22": lambda i: mttf.theory_h(2048, 6.5) / mttf.theory_h(1024, 6.5),
    "E01": lambda i: three_jobs().job_mttf.value,
    "E02": lambda i: three_jobs().node_mttf.value,
    "E03": lambda i: "{}-{}".format(*rates.bucket(int(i["gpus"]))),
    "E04": lambda i: is_128_in_rf(),
    "E17": lambda i: (
        observed_rf(i["failures"], i["node_days"]).low,
        observed_rf(i["failures"], i["node_days"]).high,
    ),
    "E18": lambda i: rolling_rate(),
    "X10": lambda i: ettr.equation_2_at_best(i["nodes"], i["rf"], i["u0_min"], 0.0).value,
    "X21": refused,
    "X23": lambda i: goodput.first_order(i["useful_s"] / 60, i["blocking_save_s"] / 60, 1e12, 0).goodput.value,
    "G27": lambda i: (
        first_order(i).checkpoint.value
        + first_order(i).rework.value
        + first_order(i).restart.value
        - i["delta_min"] / (2 * i["M_min"])
    ),
    "G33": lambda i: young_against_daly_points(),
    "G34": lambda i: (
        first_order({"delta_min": 5, "M_min": 93}).checkpoint.value
        / first_order({"delta_min": 5, "M_min": 186}).checkpoint.value
    ),
    "G35": lambda i: goodput.crossover_mtbf_min(i["delta_min"], i["R_min"]),
    "S08": lambda i: poisson.mean_time("", int(i["events"]), i["days"] * 24, "h").value / 24,
    "L07": lambda i: lemon_hazard_ratio(0.14, 0.04, 0.012),
    "L11": lambda i: rates.per_1000_node_days(i["per_gpu_hour"], int(i["gpus_per_node"])),
    "L12": lambda i: rates.per_1000_node_days(i["per_gpu_hour"], int(i["gpus_per_node"])),
}


def expected_of(row: dict[str, str]) -> Any:
    text = row["expected"].removesuffix(" pass")
    numbers = text.split("..")
    try:
        found = tuple(float(n) for n in numbers)
    except ValueError:
        return text
    return found[0] if len(found) == 1 else found


def assert_within(got: Any, row: dict[str, str]) -> None:
    kind, _, amount = row["tolerance"].partition("=")
    if kind == "max":
        assert 0 <= got <= float(amount)
    elif kind == "exact":
        assert got == expected_of(row)
    else:
        assert got == pytest.approx(expected_of(row), **{"rel": 0.0, "abs": 0.0, kind: float(amount)})


def is_a_model(row: dict[str, str]) -> bool:
    elsewhere = row["id"].startswith("D") or row["id"] in IN_HISTORY or row["id"] in NOT_COMPUTED
    return row["status"] != "constant" and not elsewhere


@pytest.mark.parametrize("oracle", [r["id"] for r in ROWS.values() if is_a_model(r)])
def test_the_figure_is_the_oracles(oracle: str) -> None:
    row = ROWS[oracle]
    compute = BY_ID.get(oracle) or BY_QUANTITY[row["quantity"]]
    assert_within(compute(inputs_of(row["inputs"])), row)


def test_only_sums_and_ratios_of_the_sources_are_left_uncomputed() -> None:
    assert set(NOT_COMPUTED) <= set(ROWS)
    assert {ROWS[i]["status"] for i in NOT_COMPUTED} <= {"ok", "trap"}


def test_the_constants_of_the_sources_are_the_defaults_here() -> None:
    default = Run(nodes=1, rf_per_1000_node_days=1)
    assert ROWS["K05"]["expected"] == f"{rates_over_time.ROLLING_DAYS} d"
    assert ROWS["K08"]["expected"].startswith(f"{default.restart_min:g} min")
    assert ROWS["K09"]["expected"].startswith(f"{default.checkpoint_write_min:g} min")
    assert ROWS["K14"]["expected"] == str(mttf.GPUS_PER_NODE)
