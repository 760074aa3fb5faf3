"""What the controller may ask: which nodes the history recommends for the Lemon state, and why. Nothing here acts."""

from dataclasses import dataclass
from datetime import datetime

from nodetriage.analysis.history import attribution
from nodetriage.analysis.history.history import History
from nodetriage.analysis.history.study import Settings
from nodetriage.analysis.lemons import detector, score, signals


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
    facts = signals.facts(history, attribution.attribute(history, settings.attribution))
    judged = detector.judge(facts, history.until, settings.lemons)
    chances = dict(judged.nodes.select("node", "p").iter_rows())
    return tuple(
        Recommendation(node, judged.until, chances[node], score.explain(judged, facts, node)) for node in judged.flagged
    )
