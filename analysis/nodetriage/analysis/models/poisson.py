"""Intervals for counted events: the Gamma relation of a Poisson count (Garwood 1936), widened for bursty ones."""

from typing import Literal

from nodetriage.analysis.models.figure import Figure, OutOfDomain, share

LEVEL = 0.90


def event_interval(events: int, level: float = LEVEL, dispersion: float = 1.0) -> tuple[float, float]:
    """The mean counts that `events` leaves credible. Zero events bound from above only. Raises OutOfDomain.

    `dispersion` is variance over mean; above 1, the interval is that of events/dispersion independent bursts.
    """
    from scipy.stats import gamma

    share(level=level)
    if events < 0 or not dispersion > 0:
        raise OutOfDomain(f"expected no negative count and dispersion above 0, got {events} and {dispersion:g}")
    tail, width = (1 - level) / 2, max(1.0, dispersion)
    low = float(gamma.ppf(tail, events / width)) * width if events else 0.0
    return low, float(gamma.isf(tail, events / width + 1)) * width


def rate(name: str, events: int, exposure: float, unit: str, *, dispersion: float = 1.0) -> Figure:
    """Events over exposure, with its 90 % interval. `unit` names one over the unit of exposure. Raises OutOfDomain."""
    notes = _notes(events, dispersion)
    if exposure <= 0:
        return Figure(name, float("nan"), unit, "measured", notes=("nothing ran in the window",))
    low, high = event_interval(events, dispersion=dispersion)
    return Figure(name, events / exposure, unit, "measured", low / exposure, high / exposure, notes)


def mean_time(
    name: str, events: int, exposure: float, unit: Literal["h", "node-days"], *, dispersion: float = 1.0
) -> Figure:
    """Exposure over events, with its 90 % interval; without events a lower bound alone. Raises OutOfDomain."""
    notes = _notes(events, dispersion)
    if exposure <= 0:
        return Figure(name, float("nan"), unit, "measured", notes=("nothing ran in the window",))
    low, high = event_interval(events, dispersion=dispersion)
    upper = exposure / low if low > 0 else float("inf")
    return Figure(name, exposure / events if events else float("inf"), unit, "measured", exposure / high, upper, notes)


def _notes(events: int, dispersion: float) -> tuple[str, ...]:
    notes = [f"{events} failures"]
    if not events:
        notes.append("no failure seen: a bound only")
    if dispersion > 1:
        notes.append(f"failures come in bursts: interval widened for variance {dispersion:.2f} times the mean")
    return tuple(notes)
