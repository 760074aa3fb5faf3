"""Time that has passed by a wall clock that may step, or differ between two controllers. Pure.

A time that lies ahead of `now` was taken before the clock stepped back. How long ago is unknown: nothing waits for it.
"""

from datetime import datetime, timedelta

STEP = timedelta(minutes=10)  # no reading of the scheduler takes as long: a larger difference is a step of the clock


def has_lasted(since: datetime, now: datetime, for_s: float) -> bool:
    """Whether something has lasted; also where the clock stepped back since."""
    return now - since >= timedelta(seconds=for_s) or now < since


def is_later(at: datetime, than: datetime) -> bool:
    """Whether a reading was taken after something; also where the clock stepped back in between."""
    return at > than or than - at > STEP
