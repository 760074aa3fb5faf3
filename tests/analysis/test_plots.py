"""The plots: they say title, units, source and "model"; they hold what they were given; empty input draws too."""

import dataclasses
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from matplotlib.figure import Figure

from nodetriage.analysis.history import rates_over_time
from nodetriage.analysis.history.rates import SizeBucket
from nodetriage.analysis.models import poisson, solve
from nodetriage.analysis.plots import model_plots

SOURCE = "jobs.parquet, 2025-01-01 to 2025-12-01"


def bucket(low: int, high: int, failures: int, run_h: float) -> SizeBucket:
    days = run_h * high / 8 / 24
    return SizeBucket(
        low,
        high,
        runs=100,
        failures=failures,
        run_h=run_h,
        node_days=days,
        job_mttf=poisson.mean_time("job-level MTTF", failures, run_h, "h"),
        node_mttf=poisson.mean_time("node-level MTTF", failures, days, "node-days"),
    )


BUCKETS = (bucket(5, 8, 0, 1000), bucket(129, 256, 12, 900), bucket(513, 1024, 40, 1200))
EMPTY_RATES = pl.DataFrame(schema={"day": pl.Date, "category": pl.String, "per_1000_node_days": pl.Float64})
NO_NOTES = pl.DataFrame(schema={"day": pl.Date, "text": pl.String})


def rolling() -> pl.DataFrame:
    rows = [(date(2025, 1, 1) + timedelta(days=d), c, float(d)) for d in range(5) for c in ("ib_link", "mount")]
    return pl.DataFrame(rows, schema=EMPTY_RATES.schema, orient="row")


PLOTS: dict[str, Callable[[], Figure]] = {
    "mttf": lambda: model_plots.mttf_by_size(BUCKETS, 6.5, SOURCE),
    "mttf of nothing": lambda: model_plots.mttf_by_size((), None, SOURCE),
    "rolling": lambda: model_plots.rolling_rates(
        rolling(), pl.DataFrame({"day": [date(2025, 1, 3)], "text": ["check fs_mounts first seen"]}), SOURCE
    ),
    "rolling of nothing": lambda: model_plots.rolling_rates(EMPTY_RATES, NO_NOTES, SOURCE),
    "contour": lambda: model_plots.ettr_contour(solve.contour(), 12_288),
    "contour of nothing": lambda: model_plots.ettr_contour((), 12_288),
    "goodput": lambda: model_plots.goodput_by_interval(186, 15),
}


def text_of(svg: Path) -> str:
    return " ".join(t for t in ElementTree.parse(svg).getroot().itertext())


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_written_as_svg_and_png_with_title_units_and_source(name: str, tmp_path: Path) -> None:
    svg, png = model_plots.save(PLOTS[name](), tmp_path / "plots", "it")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = text_of(svg)
    assert "source: " in text
    assert any(unit in text for unit in ("[h]", "[min]", "per 1000 node-days"))


def test_the_same_plot_gives_the_same_bytes(tmp_path: Path) -> None:
    one = model_plots.save(PLOTS["mttf"](), tmp_path / "a", "it")
    two = model_plots.save(PLOTS["mttf"](), tmp_path / "b", "it")
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]


def test_mttf_shows_measured_intervals_bounds_and_the_models_line() -> None:
    (axes,) = model_plots.mttf_by_size(BUCKETS, 6.5, SOURCE).axes
    labels = [str(t.get_text()) for t in axes.get_legend().get_texts()]
    assert any("measured, 90 %" in label for label in labels)
    assert any("no failure" in label for label in labels)
    assert any(label.startswith("model") for label in labels)


def test_the_models_line_knows_how_many_gpus_a_node_has_and_points_stand_at_mean_sizes() -> None:
    """r_f 6.5, 1,024 GPUs: 128 nodes of 8 fail every 28.8 h, 256 nodes of 4 every 14.4 h."""
    for per_node, hours in ((8, 28.846), (4, 14.423)):
        (axes,) = model_plots.mttf_by_size(BUCKETS, 6.5, SOURCE, per_node).axes
        (model,) = [line for line in axes.lines if str(line.get_label()).startswith("model")]
        assert dict(zip(*model.get_data(), strict=True))[1024] == pytest.approx(hours, rel=1e-3)
    small = dataclasses.replace(BUCKETS[1], node_days=BUCKETS[1].run_h * 20 / 24)  # 20 nodes of 8 on average
    (axes,) = model_plots.mttf_by_size((small,), None, SOURCE).axes
    assert axes.lines[0].get_xdata()[0] == pytest.approx(160)  # type: ignore[index]


def test_rolling_rates_stack_every_cause_and_number_the_days_on_which_checks_came() -> None:
    figure = PLOTS["rolling"]()
    (axes,), (legend,) = figure.axes, figure.legends
    assert {str(t.get_text()) for t in legend.get_texts()} == {"ib_link", "mount", "1: check fs_mounts first seen"}
    assert [t.get_text() for t in axes.texts] == ["1"]


def test_what_rolling_gives_can_be_drawn_where_a_day_has_no_rate() -> None:
    nulls = rolling().with_columns(per_1000_node_days=pl.lit(None, dtype=pl.Float64))
    assert model_plots.rolling_rates(nulls, NO_NOTES, SOURCE).axes
    assert rates_over_time.ROLLING_DAYS == 30


def test_models_are_called_models() -> None:
    for name in ("contour", "goodput"):
        assert "(model)" in PLOTS[name]().axes[0].get_title()
