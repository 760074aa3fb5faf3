"""What the controller may ask: which nodes the history recommends for the Lemon state, and why. Nothing here acts."""

from dataclasses import dataclass
from datetime import datetime

from nodetriage.analysis import attribution, lemon_score, lemon_signals, lemons
from nodetriage.analysis.history import History
from nodetriage.analysis.study import Settings


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`chance` is the probability that an ordinary node of this fleet would look as bad in the window up to `at`."""

    node: str
    at: datetime
    chance: float
    why: str


def lemon_nodes(history: History, settings: Settings | None = None) -> tuple[Recommendation, ...]:
    """Nodes for the Lemon state over the window that ends with the history, the least ordinary first."""
    settings = settings or Settings()
    facts = lemon_signals.facts(history, attribution.attribute(history, settings.attribution))
    judged = lemons.judge(facts, history.until, settings.lemons)
    chances = dict(judged.nodes.select("node", "p").iter_rows())
    return tuple(
        Recommendation(node, judged.until, chances[node], lemon_score.explain(judged, facts, node))
        for node in judged.flagged
    )
