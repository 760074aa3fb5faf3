"""The ids of incidents: none is given twice, also after the database is restored from a backup. Pure.

An id is DATE-NUMBER, and DATE-eEPOCH-NUMBER after the first restore. The epoch grows where Slurm shows a drain of ours
with an id that this database has not given yet, and where an agent has acks for events that are not in it. It begins
with the second of the day: a database that was lost does not know which epochs it had on that date.
"""

import re
from dataclasses import dataclass
from datetime import datetime

_ID = re.compile(r"\d{6}-(?:e(?P<epoch>\d{1,9})-)?(?P<number>\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Epoch:
    """`since` is how many incidents there were when it began: while no more are, there is nothing to protect."""

    number: int = 0
    since: int = -1

    def name(self, now: datetime, incident: int) -> str:
        """The id of the incident with this number."""
        own = f"e{self.number}-" if self.number else ""
        return f"{now:%y%m%d}-{own}{incident}"

    def next(self, now: datetime, given: int, shown: int = 0) -> "Epoch":
        """After this one and `shown`; `given` is how many incidents there are."""
        second = now.hour * 3600 + now.minute * 60 + now.second
        return Epoch(max(self.number, shown, second) + 1, given)


def is_ahead(incident: str, epoch: Epoch, given: int) -> int | None:
    """The epoch of an id that was not given in `epoch` or before it; None for one that may have been."""
    match = _ID.fullmatch(incident)
    if match is None:
        return None
    shown = int(match["epoch"] or 0), int(match["number"])
    return shown[0] if shown > (epoch.number, given) else None
