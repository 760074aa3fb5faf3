"""How often a run is expected to be interrupted, linearised and exact, and the parameters both share with ETTR."""

import math
from dataclasses import dataclass

from nodetriage.analysis.models.figure import Figure, OutOfDomain, not_negative, positive

MINUTES_PER_DAY = 1440.0
# With more failures than this in the time that one failure costs, the linear equations are percents off.
STRAIN_WARNING = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """One training run. All times in minutes, the rate per node and day times 1000.

    `productive_min` is the work itself; infinite for the long-run limit. `queue_min` is waited once per start.
    `rework_share` is how much of an interval a failure costs: half where it can strike at any time, all of it in the
    worst case, in which failures strike the checkpoint write itself (linear equations only).
    Raises OutOfDomain for a value that is impossible.
    """

    nodes: float
    rf_per_1000_node_days: float
    restart_min: float = 5.0
    checkpoint_write_min: float = 5.0
    checkpoint_interval_min: float = 60.0
    queue_min: float = 0.0
    productive_min: float = math.inf
    rework_share: float = 0.5

    def __post_init__(self) -> None:
        positive(nodes=self.nodes, checkpoint_interval_min=self.checkpoint_interval_min)
        if self.rf_per_1000_node_days != 0:
            positive(rf_per_1000_node_days=self.rf_per_1000_node_days)
        not_negative(
            restart_min=self.restart_min,
            checkpoint_write_min=self.checkpoint_write_min,
            queue_min=self.queue_min,
        )
        if not 0 <= self.rework_share <= 1:
            raise OutOfDomain(f"rework_share: expected 0 to 1, got {self.rework_share:g}")
        if not math.isinf(self.productive_min):
            positive(productive_min=self.productive_min)
        elif self.productive_min < 0:
            raise OutOfDomain("productive_min: expected a number above 0")

    @property
    def failures_per_min(self) -> float:
        """lambda = N rf."""
        return self.nodes * self.rf_per_1000_node_days / 1000 / MINUTES_PER_DAY

    @property
    def strain(self) -> float:
        """Failures expected in the time that one failure costs; the linear equations need it to be far below 1."""
        return self.failures_per_min * (self.restart_min + self.rework_min)

    @property
    def rework_min(self) -> float:
        """Work that one failure undoes."""
        return self.checkpoint_interval_min * self.rework_share

    def linear_notes(self) -> tuple[str, ...]:
        """Warnings for the linear equations. Raises OutOfDomain where they have no meaning any more."""
        if self.strain >= 1:
            raise OutOfDomain(
                f"N rf (restart + rework) is {self.strain:.3g}: expected below 1; at this rate the run fails again"
                " before it has made up for the last failure. Use the exact form, or a shorter interval"
            )
        if self.strain > STRAIN_WARNING:
            return (f"N rf (restart + rework) is {self.strain:.2f}, above {STRAIN_WARNING}: use the exact form",)
        return ()

    def refuse_other_rework(self) -> None:
        """Raises OutOfDomain where `rework_share` is not what follows from failures at any time."""
        if self.rework_share != 0.5:
            raise OutOfDomain("rework_share: the exact form and trials follow from failures at any time; expected 0.5")

    def finite_productive_min(self) -> float:
        """`productive_min`, where the caller needs a finite run. Raises OutOfDomain."""
        if math.isinf(self.productive_min):
            raise OutOfDomain("productive_min: expected a finite number for this figure")
        return self.productive_min


def linear(run: Run) -> Figure:
    """E[n] = lambda R (1 + u0/R + w/dt) / (1 - lambda (u0 + dt/2)). Raises OutOfDomain."""
    notes, work = run.linear_notes(), run.finite_productive_min()
    stall = run.checkpoint_write_min / run.checkpoint_interval_min
    value = run.failures_per_min * work * (1 + run.restart_min / work + stall) / (1 - run.strain)
    return Figure("expected interruptions, linearised", value, "interruptions", notes=notes)


def exact_running_min(run: Run) -> float:
    """Expected minutes outside the queue, failures also striking restarts and checkpoint writes. Raises OutOfDomain.

    T = M (e^{u0/M} - 1) + n M e^{u0/M} (e^{(dt+w)/M} - 1) with n = R/dt segments, for Poisson failures.
    """
    work, rate = run.finite_productive_min(), run.failures_per_min
    run.refuse_other_rework()
    segments = work / run.checkpoint_interval_min
    segment = run.checkpoint_interval_min + run.checkpoint_write_min
    if rate == 0:
        return run.restart_min + segments * segment
    try:
        restart = math.expm1(run.restart_min * rate)
        running = (restart + segments * (1 + restart) * math.expm1(segment * rate)) / rate
    except OverflowError:
        running = math.inf
    if math.isinf(running):
        raise OutOfDomain("the run never ends: a restart or a segment is hundreds of MTTFs long")
    return running


def exact(run: Run) -> Figure:
    """T/M: what the exact form expects. Raises OutOfDomain."""
    value = exact_running_min(run) * run.failures_per_min
    return Figure("expected interruptions, exact", value, "interruptions")
