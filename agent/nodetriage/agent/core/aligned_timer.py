"""At which moments a node does its periodic work: as much of it as possible at the same moment.

Each moment wakes sleeping processes, and that costs more than most of their work. A job whose ranks wait for each other
also loses less. Each node has its own phase, so that a fleet does not ask its file servers all at once.
"""

from dataclasses import dataclass

PHASE_S = 300.0  # nodes are spread over this time


@dataclass(frozen=True, slots=True)
class AlignedTimer:
    """`phase` is a share of PHASE_S, from 0 to 1."""

    phase: float = 0.0

    def until_next_s(self, every_s: float, now_s: float) -> float:
        """Seconds until the next moment of this interval. Moments of intervals that divide each other coincide.

        `now_s` is monotonic.
        """
        return every_s - (now_s - self.phase * PHASE_S) % every_s
