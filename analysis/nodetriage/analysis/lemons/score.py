"""How good a lemon list is, what removing its nodes saves, and why each node is on it."""

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from nodetriage.analysis.history.attribution import Attributed
from nodetriage.analysis.history.false_positives import with_share
from nodetriage.analysis.history.history import History
from nodetriage.analysis.lemons.detector import Judged
from nodetriage.analysis.lemons.signals import SIGNALS, Facts
from nodetriage.analysis.tables import TIME

LARGE_GPUS = 512


@dataclass(frozen=True, slots=True)
class Score:
    """Against labelled nodes. None where there is nothing to divide by. There is no accuracy: flagging no node at all

    would have 98.8 % of it when 1.2 % of nodes are lemons.
    """

    flagged: int
    lemons: int
    right: int
    nodes: int

    @property
    def precision(self) -> float | None:
        return self.right / self.flagged if self.flagged else None

    @property
    def recall(self) -> float | None:
        return self.right / self.lemons if self.lemons else None

    @property
    def flagged_share(self) -> float | None:
        return self.flagged / self.nodes if self.nodes else None


@dataclass(frozen=True, slots=True)
class Effect:
    """The share of large jobs that failed, before and after; in points and relative to before."""

    before_failed: int
    before: int
    after_failed: int
    after: int

    @property
    def points(self) -> float | None:
        """Percentage points fewer that failed."""
        if not self.before or not self.after:
            return None
        return 100 * (self.before_failed / self.before - self.after_failed / self.after)

    @property
    def relative(self) -> float | None:
        """The share of failures that went away."""
        if self.points is None or not self.before_failed:
            return None
        return self.points / 100 / (self.before_failed / self.before)


def score(flagged: Collection[str], lemons: Collection[str], nodes: int) -> Score:
    """`flagged` against the nodes known to be lemons, in a fleet of so many nodes."""
    return Score(len(set(flagged)), len(set(lemons)), len(set(flagged) & set(lemons)), nodes)


def without(history: History, attributed: Attributed, flagged: Collection[str], least_gpus: int = LARGE_GPUS) -> Effect:
    """The effect of removing the flagged nodes: large jobs that failed because of them alone would have continued."""
    jobs = history.jobs.filter((pl.col("gpus") >= least_gpus) & pl.col("end_at").is_not_null())
    jobs = jobs.filter(pl.col("start_at").is_not_null())
    failed = attributed.infrastructure.filter(pl.col("gpus") >= least_gpus)
    spared = failed.filter(
        (pl.col("blamed").list.len() > 0) & pl.col("blamed").list.eval(pl.element().is_in(list(flagged))).list.all()
    )
    return Effect(failed.height, jobs.height, failed.height - spared.height, jobs.height)


def root_causes(history: History) -> pl.DataFrame:
    """What repairs found: cause, repairs, share, low and high (90 %), the most frequent first."""
    found = history.outages.filter(pl.col("kind") == "repaired")
    counts = found.with_columns(pl.col("cause").replace("", "unknown")).group_by("cause").len("repairs")
    rows = counts.sort(["repairs", "cause"], descending=[True, False])
    return with_share(rows, "repairs", found.height)


def explain(judged: Judged, of: Facts, node: str) -> str:
    """One paragraph: what the node did in the window, how unlikely that is, what stands out, what to do."""
    row = judged.nodes.filter(pl.col("node") == node).to_dicts()[0]
    days = judged.settings.window_days
    text = [f"{node}: in the {days} days to {judged.until:%Y-%m-%d %H:%M} UTC"]
    text.append(
        f"{row['failures']} job failures are attributed to it ({row['single_node_node_fails']} of single-node jobs,"
        f" {row['multi_node_node_fails']} of larger ones, on {row['occasions']} occasions) and it was out of service"
        f" {row['out_count']} times,"
        f" where {row['expected']:.2g} were to be expected of a node here (chance {row['p']:.1g}; after correction for"
        f" {judged.nodes.height} nodes q = {row['q']:.1g})."
    )
    if causes := _causes(of, judged, node):
        text.append(f"The faults: {causes}.")
    if row["above"]:
        names = [f"{s} {row[s]:.3g} (fleet's limit {judged.thresholds[s]:.3g})" for s in row["above"]]
        text.append(f"Out of the fleet's range: {', '.join(names)}.")
    if row["excl_jobid_count"]:
        text.append(f"Jobs that excluded it: {row['excl_jobid_count']}; that alone flags no node.")
    advice = "Recommended: Lemon, repair before it takes jobs again." if row["flagged"] else "No action is recommended."
    return " ".join([*text, advice])


def cdf(judged: Judged) -> pl.DataFrame:
    """signal, value, share of nodes at or below it: the distributions from which thresholds are chosen."""
    parts = []
    for signal in SIGNALS:
        counts = (
            judged.nodes.select(pl.col(signal).cast(pl.Float64).alias("value")).group_by("value").len().sort("value")
        )
        share = pl.col("len").cum_sum() / max(judged.nodes.height, 1)
        parts.append(counts.select(pl.lit(signal).alias("signal"), "value", share.alias("share")))
    return pl.concat(parts)


def _causes(of: Facts, judged: Judged, node: str) -> str:
    since = pl.lit(judged.until, dtype=TIME) - pl.duration(days=judged.settings.window_days)
    own = of.failures.filter((pl.col("node") == node) & (pl.col("at") > since) & (pl.col("at") <= judged.until))
    counts = own.select(pl.col("category").fill_null("node lost, no evidence")).group_by("category").len("n")
    return ", ".join(f"{c} {n}" for c, n in counts.sort(["n", "category"], descending=[True, False]).iter_rows())
