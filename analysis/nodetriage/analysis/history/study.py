"""A history under study: computes once what several reports need, on first use."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from nodetriage.analysis.history import attribution, cascades, false_positives, observed, rates
from nodetriage.analysis.history.attribution import Attributed, Attribution
from nodetriage.analysis.history.cascades import Cascades, Linked
from nodetriage.analysis.history.exposure import Window
from nodetriage.analysis.history.false_positives import Budget, FalsePositives
from nodetriage.analysis.history.history import History
from nodetriage.analysis.history.observed import Observe
from nodetriage.analysis.history.rates import LARGE_GPUS, FleetRate
from nodetriage.analysis.lemons import detector, signals
from nodetriage.analysis.lemons.detector import Judged, Lemons
from nodetriage.analysis.lemons.signals import Facts
from nodetriage.checks.model.settings import decode, load_toml

FAILED = pl.col("infrastructure")


@dataclass(frozen=True, slots=True)
class Rates:
    """r_f is taken over jobs of more than `larger_than_gpus` GPUs."""

    larger_than_gpus: int = LARGE_GPUS
    gpus_per_node: int = 8

    def __post_init__(self) -> None:
        if self.larger_than_gpus < 0 or self.gpus_per_node < 1:
            raise ValueError("larger_than_gpus: expected 0 or more; gpus_per_node: expected at least 1")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the reports; each is a table of the settings file by its name."""

    attribution: Attribution = field(default_factory=Attribution)
    rates: Rates = field(default_factory=Rates)
    observed: Observe = field(default_factory=Observe)
    cascades: Cascades = field(default_factory=Cascades)
    lemons: Lemons = field(default_factory=Lemons)
    false_positives: Budget = field(default_factory=Budget)


def read_settings(path: Path | None) -> Settings:
    """The settings in a TOML file, or the defaults. Raises ConfigError naming the key."""
    return Settings() if path is None else decode(Settings, load_toml(path), str(path))


class Study:
    """A history with its settings; the properties are the shared results. It calls `progress` with each step."""

    def __init__(
        self,
        history: History,
        settings: Settings | None = None,
        progress: Callable[[str], None] = lambda text: None,
        topology: pl.DataFrame | None = None,
    ) -> None:
        self.history = history
        self.settings = settings or Settings()
        self.progress = progress
        self.topology = topology  # as topology.read gives it

    @functools.cached_property
    def window(self) -> Window:
        """The period of the reports."""
        return self.history.window

    @functools.cached_property
    def capacity_gpu_h(self) -> float:
        """GPU hours that the nodes seen in this history have in its period; nodes that never show are missing."""
        return self.facts.nodes.len() * self.settings.rates.gpus_per_node * self.window.days * 24

    @functools.cached_property
    def attributed(self) -> Attributed:
        self.progress("attributing failed jobs")
        return attribution.attribute(self.history, self.settings.attribution)

    @functools.cached_property
    def jobs(self) -> pl.DataFrame:
        """Jobs with what rates need, `infrastructure` (a failure of the fleet) and its `category`."""
        infra = self.attributed.infrastructure.select(
            "run",
            pl.col("category").fill_null(pl.lit("node lost, no evidence")),
            pl.lit(True).alias("infrastructure"),
        )
        needed = self.history.jobs.select("run", "state", "start_at", "end_at", "nodes", "node_count", "gpus")
        marked = needed.join(infra, on="run", how="left", maintain_order="left")
        return marked.with_columns(pl.col("infrastructure").fill_null(False))

    @functools.cached_property
    def fleet_rate(self) -> FleetRate:
        """Over jobs above the settings' size; where none ran, over those of whole nodes, and at last over all."""
        self.progress("measuring failure rates")
        asked = self.settings.rates.larger_than_gpus
        measured = rates.fleet_rate(self.jobs, self.window, FAILED, asked)
        for smaller in (self.settings.rates.gpus_per_node - 1, 0):
            if measured.node_days > 0 or smaller >= asked:
                break
            note = f"not measured above {asked} GPUs, where no job ran; this is the rate of jobs above {smaller} GPUs"
            found = rates.fleet_rate(self.jobs, self.window, FAILED, smaller)
            if found.node_days > 0:
                measured = replace(found, rf=replace(found.rf, notes=(note, *found.rf.notes)))
        return measured

    @functools.cached_property
    def linked(self) -> Linked:
        self.progress("linking preemptions")
        return cascades.linked(self.history, self.attributed, self.settings.cascades)

    @functools.cached_property
    def false_positives(self) -> FalsePositives:
        self.progress("counting completed jobs that saw a failed check")
        return false_positives.false_positives(self.history, self.settings.false_positives)

    @functools.cached_property
    def runs(self) -> pl.DataFrame:
        """Logical runs with their observed ETTR, and the model's where a rate was measured."""
        self.progress("stitching runs")
        found = observed.logical_runs(self.history, self.settings.observed)
        rate = self.fleet_rate.rf.value
        # NaN, where nothing ran, compares false; without a rate there is no prediction.
        return observed.with_prediction(found, rate if rate >= 0 else None, self.settings.observed)

    @functools.cached_property
    def facts(self) -> Facts:
        self.progress("counting what happened to each node")
        return signals.facts(self.history, self.attributed)

    @functools.cached_property
    def judged(self) -> Judged:
        return detector.judge(self.facts, self.history.until, self.settings.lemons)
