"""Plots of what a history shows: lemon signals over the fleet, and where each week went."""

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from nodetriage.analysis.history import losses, rates, rates_over_time
from nodetriage.analysis.history.study import FAILED, Study
from nodetriage.analysis.lemons import score
from nodetriage.analysis.lemons.detector import Judged
from nodetriage.analysis.lemons.signals import SIGNALS
from nodetriage.analysis.models import mttf, solve
from nodetriage.analysis.plots import model_plots

_COLOURS = {
    "useful": "#4c9f70",
    "checkpoint_stall": "#8fb8de",
    "rework": "#c0392b",
    "second_order": "#e67e22",
    "restart": "#8e6bbf",
    "user_failures": "#b8b8b8",
    "other_ends": "#7f8c8d",
}

_FAILURES = ("rework", "second_order", "restart")


def draw_all(study: Study, directory: Path) -> list[Path]:
    """Every plot of the study as SVG and PNG in `directory`; gives the files."""
    source = _source(study)
    rf = study.fleet_rate.rf.value
    rate = rf if rf > 0 else None
    buckets = rates.by_size(study.jobs, study.window, FAILED)
    larger = study.fleet_rate.larger_than_gpus
    rolling = rates_over_time.rolling(study.jobs, study.window, FAILED, pl.col("category"), larger_than_gpus=larger)
    firsts = rates_over_time.check_annotations(study.history.events, study.window)
    weeks = losses.weeks(
        study.history, study.attributed, study.linked, study.settings.observed, study.settings.rates.gpus_per_node
    )
    drawn = {
        "mttf-by-size": model_plots.mttf_by_size(buckets, rate, source, study.settings.rates.gpus_per_node),
        "rolling-rates": model_plots.rolling_rates(rolling, firsts, source),
        "ettr-contour": model_plots.ettr_contour(solve.contour(), solve.CONTOUR_GPUS),
        "goodput-by-interval": model_plots.goodput_by_interval(_mtbf_min(study), study.settings.observed.restart_min),
        "lemon-signals": lemon_signals(study.judged, source),
        "weeks": where_weeks_went(weeks, source),
    }
    return [path for name, figure in drawn.items() for path in model_plots.save(figure, directory, name)]


def lemon_signals(judged: Judged, source: str) -> Figure:
    """The share of nodes at or below each value, each signal on a scale of its own; flagged nodes are marked."""
    figure = Figure(figsize=(11.0, 6.0), layout="constrained")
    figure.suptitle(f"Lemon signals over {judged.nodes.height:,} nodes, {judged.settings.window_days} days")
    steps = score.cdf(judged)
    flagged = judged.nodes.filter("flagged")
    panels = figure.subplots(2, 4)
    for panel, signal in zip(panels.flat, SIGNALS, strict=True):
        own = steps.filter(pl.col("signal") == signal)
        _cdf(panel, own, flagged[signal].to_numpy(), judged.thresholds[signal], signal)
    figure.supylabel("share of nodes at or below", fontsize="medium")
    model_plots.say_source(figure, f"{source} (line: from here a signal stands out; crosses: flagged nodes)")
    return figure


def where_weeks_went(weeks: pl.DataFrame, source: str) -> Figure:
    """GPU hours of each week as shares, stacked; below, on a scale of their own, the parts that failures took."""
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    figure.suptitle("Where each week's GPU hours went")
    whole, lost = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    if weeks.height:
        seen = [b for b in losses.BUCKETS if weeks.filter(pl.col("bucket") == b)["gpu_h"].sum() > 0]
        _stack(whole, weeks, seen)
        _stack(lost, weeks, [b for b in seen if b in _FAILURES])
        whole.set_ylim(0, 100)
        handles, labels = whole.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right upper", fontsize="small", title="mean of all")
    whole.set_ylabel("share of GPU hours in use [%]")
    lost.set_ylabel("taken by failures [%]")
    lost.set_xlabel("week (from Monday, UTC)")
    model_plots.say_source(figure, source)
    return figure


def _stack(plot: Axes, weeks: pl.DataFrame, buckets: list[str]) -> None:
    wide = weeks.pivot("bucket", index="week", values="share").sort("week")
    below = np.zeros(wide.height)
    for bucket in buckets:
        share = wide[bucket].to_numpy() * 100
        label = f"{bucket.replace('_', ' ')} {_mean(weeks, bucket):.2%}"
        label += " (model)" if losses.BUCKETS[bucket].startswith("model") else ""
        plot.bar(wide["week"].to_numpy(), share, width=6, bottom=below, label=label, color=_COLOURS[bucket])
        below += share
    plot.grid(visible=True, axis="y", alpha=0.3)
    plot.tick_params(axis="x", rotation=30)


def _cdf(
    panel: Axes, steps: pl.DataFrame, flagged: "np.ndarray[tuple[int], np.dtype[np.float64]]", limit: float, signal: str
) -> None:
    values, shares = steps["value"].to_numpy(), steps["share"].to_numpy()
    panel.step(values, shares, where="post")
    panel.axvline(limit, color="tab:red", linewidth=0.8, linestyle="--")
    if flagged.size:
        at = shares[np.searchsorted(values, flagged)]
        panel.plot(flagged, at, "x", color="tab:red", markersize=5)
    panel.set_title(signal.replace("_per_", "\nper ").replace("_failure_share", "\nfailure_share"), fontsize="small")
    least = float(shares.min()) if shares.size else 0.0
    spread = 1 - least or 0.1
    panel.set_ylim(1 - spread * 1.05, 1 + spread * 0.05)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.tick_params(labelsize="small")
    panel.grid(visible=True, alpha=0.3)


def _mean(weeks: pl.DataFrame, bucket: str) -> float:
    total = float(weeks["gpu_h"].sum())
    return float(weeks.filter(pl.col("bucket") == bucket)["gpu_h"].sum()) / total if total else 0.0


def _mtbf_min(study: Study) -> float:
    """Of a job as large as the largest seen; without failures the example of the literature (Llama 3: 186 min)."""
    fleet = study.fleet_rate
    if not fleet.rf.value > 0 or not fleet.largest_nodes:
        return 186.0
    return float(round(mttf.theory_h(fleet.largest_nodes, fleet.rf.value) * 60))


def _source(study: Study) -> str:
    history = study.history
    names = ", ".join(Path(s).name for s in history.problems) or "no input"
    return f"{names}, {history.since:%Y-%m-%d} to {history.until:%Y-%m-%d}, {history.jobs.height:,} runs"
