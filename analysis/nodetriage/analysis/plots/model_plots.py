"""The plots: each function takes what a report found and gives a Matplotlib figure; `save` writes SVG and PNG.

No pyplot, so nothing global and no display. Every plot says its source, its units, and "model" where it shows one.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter

from nodetriage.analysis.history.rates import SizeBucket
from nodetriage.analysis.models import checkpoint, goodput, mttf
from nodetriage.analysis.models.figure import Figure as Number
from nodetriage.analysis.models.figure import OutOfDomain
from nodetriage.analysis.models.solve import ContourPoint

_INCHES = (8.0, 5.0)
_MOST_NOTES = 12  # lines for first reports; more would hide the rates


def save(figure: Figure, directory: Path, name: str) -> tuple[Path, Path]:
    """Writes NAME.svg and NAME.png into `directory`, made if need be; the same figure gives the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    svg, png = directory / f"{name}.svg", directory / f"{name}.png"
    with rc_context({"svg.hashsalt": "nodetriage", "svg.fonttype": "none"}):
        figure.savefig(svg, metadata={"Date": None})
        figure.savefig(png, dpi=120, metadata={"Software": None})
    return svg, png


def axes(title: str, x: str, y: str, source: str) -> tuple[Figure, Axes]:
    """An empty plot with title, labels and source."""
    figure = Figure(figsize=_INCHES, layout="constrained")
    plot = figure.add_subplot()
    plot.set_title(title)
    plot.set_xlabel(x)
    plot.set_ylabel(y)
    plot.grid(visible=True, alpha=0.3)
    say_source(figure, source)
    return figure, plot


def say_source(figure: Figure, source: str) -> None:
    """Where the numbers come from, small, below everything."""
    figure.supxlabel(f"source: {source}", fontsize="x-small", color="0.35", x=0.99, ha="right")


def mttf_by_size(
    buckets: Sequence[SizeBucket],
    rf_per_1000_node_days: float | None,
    source: str,
    gpus_per_node: int = mttf.GPUS_PER_NODE,
) -> Figure:
    """Measured job-level MTTF with 90 % intervals (arrows where only a bound is known), and the model's line.

    A point stands at the mean size of its bucket's jobs, as the table of the report counts it.
    """
    figure, plot = axes("MTTF against job size", "GPUs of the job", "job-level MTTF [h]", source)
    plot.set_xscale("log", base=2)
    plot.set_yscale("log")
    plot.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    plot.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    seen = [b for b in buckets if b.failures]
    if seen:
        _measured(plot, seen, gpus_per_node)
    bounds = [b for b in buckets if not b.failures and b.job_mttf.low]
    if bounds:
        at = [b.job_mttf.low or 0.0 for b in bounds]
        plot.plot(
            [_size(b, gpus_per_node) for b in bounds],
            at,
            "^",
            color="tab:gray",
            label="no failure: MTTF is above (95 %)",
        )
    if rf_per_1000_node_days and buckets:
        sizes = np.array([b.gpus_to for b in buckets if b.gpus_to >= gpus_per_node] or [gpus_per_node])
        model = [mttf.theory_h(s / gpus_per_node, rf_per_1000_node_days) for s in sizes]
        plot.plot(
            sizes, model, "--", color="tab:red", label=f"model, r_f = {rf_per_1000_node_days:.3g} /1000 node-days"
        )
    if plot.has_data():
        plot.legend()
    return figure


def _size(bucket: SizeBucket, gpus_per_node: int) -> float:
    """GPUs of the bucket's jobs by their mean nodes, within the bucket."""
    mean = bucket.mean_nodes * gpus_per_node
    return min(max(mean, bucket.gpus_from), bucket.gpus_to) if bucket.run_h else float(bucket.gpus_to)


def _measured(plot: Axes, seen: Sequence[SizeBucket], gpus_per_node: int) -> None:
    value = np.array([b.job_mttf.value for b in seen])
    low = np.array([b.job_mttf.low or 0.0 for b in seen])
    high = np.array([b.job_mttf.high or np.inf for b in seen])
    sizes = [_size(b, gpus_per_node) for b in seen]
    plot.errorbar(sizes, value, yerr=[value - low, high - value], fmt="o", capsize=3, label="measured, 90 % interval")


def rolling_rates(rates: pl.DataFrame, annotations: pl.DataFrame, source: str) -> Figure:
    """Rolling failure rates stacked by cause, with numbered lines where a check first reported."""
    title, unit = "Failure rate by cause, 30 days rolling", "failures per 1000 node-days"
    figure, plot = axes(title, "last day of the window (UTC)", unit, source)
    if not rates.height:
        return figure
    wide = rates.pivot("category", index="day", values="per_1000_node_days").sort("day").fill_null(0.0)
    # The most frequent cause lies at the bottom, where it is easiest to read; colours do not repeat.
    causes = sorted((c for c in wide.columns if c != "day"), key=lambda c: -float(wide[c].sum()))
    colours = colormaps["tab20"](np.linspace(0, 1, max(len(causes), 2)))
    plot.stackplot(wide["day"].to_numpy(), *(wide[c].to_numpy() for c in causes), labels=causes, colors=colours)
    first, last = wide["day"].to_numpy()[[0, -1]]
    plot.set_xlim(first, last)
    within = annotations.filter(pl.col("day").is_between(wide["day"].min(), wide["day"].max()))
    for number, (day, text) in enumerate(within.select("day", "text").head(_MOST_NOTES).iter_rows(), 1):
        plot.axvline(day, color="black", linewidth=0.8, linestyle=":", label=f"{number}: {text}")
        plot.annotate(str(number), (day, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom")
    if within.height > _MOST_NOTES:
        plot.plot([], [], " ", label=f"and {within.height - _MOST_NOTES:,} more first seen")
    figure.legend(*_topmost_first(plot), loc="outside right upper", fontsize="small")
    figure.autofmt_xdate()
    return figure


def _topmost_first(plot: Axes) -> tuple[list[Artist], list[str]]:
    """The legend in the order of the layers, then the lines."""
    handles, labels = plot.get_legend_handles_labels()
    pairs = list(zip(handles, labels, strict=True))
    layers = [p for p in pairs if not isinstance(p[0], Line2D)]
    ordered = [*reversed(layers), *(p for p in pairs if isinstance(p[0], Line2D))]
    return [p[0] for p in ordered], [p[1] for p in ordered]


def ettr_contour(points: Sequence[ContourPoint], gpus: float) -> Figure:
    """Lines of equal ETTR: the longest checkpoint write at each failure rate."""
    title = f"What an ETTR needs at {gpus:,.0f} GPUs (model)"
    figure, plot = axes(
        title, "failures per 1000 node-days", "checkpoint write [min]", "equation 2 at its best interval"
    )
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    plot.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for target in sorted({p.target for p in points}):
        line = [p for p in points if p.target == target and p.checkpoint_write_min is not None]
        if line:
            writes = [p.checkpoint_write_min or 0.0 for p in line]
            plot.plot([p.rf_per_1000_node_days for p in line], writes, label=f"ETTR {target:g}")
    if plot.has_data():
        plot.legend()
    return figure


def goodput_by_interval(
    mtbf_min: float, restart_min: float, writes_min: Sequence[float] = (5.0, 0.5, 1 / 6), longest_min: float = 240.0
) -> Figure:
    """Exact goodput against the checkpoint interval for several write times, each with its optimum marked."""
    title = f"Goodput against checkpoint interval (model), MTBF {mtbf_min:g} min, restart {restart_min:g} min"
    figure, plot = axes(title, "checkpoint interval [min]", "goodput [share of wall time]", "Daly 2006, exact form")
    intervals = np.linspace(longest_min / 240, longest_min, 240)
    for write in writes_min:
        line = plot.plot(
            intervals,
            [_goodput(float(t), write, mtbf_min, restart_min) for t in intervals],
            label=f"write {write:.3g} min",
        )
        best = checkpoint.optimum_min(write, mtbf_min)
        plot.plot([best], [_goodput(best, write, mtbf_min, restart_min)], "o", color=line[0].get_color())
    plot.legend()
    return figure


def _goodput(interval_min: float, write_min: float, mtbf_min: float, restart_min: float) -> float:
    try:
        found: Number = goodput.exact_goodput(interval_min, write_min, mtbf_min, restart_min)
    except OutOfDomain:
        return float("nan")
    return found.value
