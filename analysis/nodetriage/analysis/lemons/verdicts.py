"""Which nodes the history recommends for the Lemon state, and why. Nothing here acts.

The controller runs this as a program, `python -m nodetriage.analysis.lemons.verdicts`. NODETRIAGE_LEMON_STUDY of its
environment holds {"database": URL, "jobs": FILE or ""}. It prints {"until", "lemons": [{"node", "chance", "why"}]}.
"""

import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

from nodetriage.analysis.history import attribution
from nodetriage.analysis.history.history import History, Sources, load
from nodetriage.analysis.history.study import Settings
from nodetriage.analysis.lemons import detector, score, signals
from nodetriage.analysis.tables import TableError


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


def main(question: str, answer: TextIO) -> int:
    """0, or 3 where the history cannot be read; the reason is on standard error."""
    asked = json.loads(question)
    now, settings = datetime.now(UTC), Settings()
    sources = Sources(database=asked["database"], jobs=Path(asked["jobs"]) if asked["jobs"] else None)
    try:
        history = load(sources, now, now - timedelta(days=settings.lemons.window_days), now)
    except TableError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    found = [{"node": r.node, "chance": r.chance, "why": r.why} for r in lemon_nodes(history, settings)]
    json.dump({"until": history.until.isoformat(), "lemons": found}, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ["NODETRIAGE_LEMON_STUDY"], sys.stdout))
