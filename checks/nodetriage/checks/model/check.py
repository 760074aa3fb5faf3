"""What a check is: how to read, how to judge, with which settings, how often and where."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nodetriage.checks.model.finding import Finding
from nodetriage.checks.model.kernel_line import kernel_pattern
from nodetriage.checks.model.kernel_rules import KernelRules

R = TypeVar("R")
P = TypeVar("P")


def latest(before: R | None, now: R) -> R:
    """What a check keeps unless it says otherwise: the newest reading alone."""
    return now


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[R, P]):
    """A check: how to read, how to judge, with which settings, how often and where.

    read(host) -> Reading      touches the machine, decides nothing
    judge(now, before, policy) pure; `before` is what `next_state` kept of the earlier readings, None at first
    next_state(before, now)    pure; what the next judge gets as `before` (default: the newest reading)
    clears(now, before)        pure, rare: (component, fault) pairs that this reading ends

    How a finding ends is the fault's `latching` in faults.toml. "no": judge reports it in each run while it
    is true. "boot" and "NNNs": judge reports it once, when it happens, and the verdict keeps it open; only such faults
    need `clears`, for the event that ends them (Xid 154 with value 0). The clears of a run come before its findings, so
    a fault that one run both clears and finds stays open.

    A reading is a frozen dataclass or a tuple of them that msgspec can turn into JSON and back: it crosses a pipe
    and survives a restart of the agent within the same boot.

    Raises ForgeablePattern for a `kernel_pattern` or `kernel_wakes` that text chosen by a user could satisfy.
    """

    name: str
    read: Callable[[Any], R]
    judge: Callable[[R, R | None, P], Iterable[Finding]]
    policy: P
    faults: tuple[str, ...]  # every code that judge may give
    worker: str = "system"  # device class: gpu, fabric, storage, bmc, system
    every_s: float = 300.0
    timeout_s: float = 5.0
    next_state: Callable[[R | None, R], R] = latest
    clears: Callable[[R, R | None], Iterable[tuple[str, str]]] | None = None
    ends: tuple[str, ...] = ()  # faults that other checks report and that `clears` may end too
    # Rules, or a regex from the record's start: what matches is this check's to judge, and wakes it.
    kernel_pattern: str | KernelRules | None = None
    kernel_wakes: str | None = None  # regex from the record's start; what matches only wakes it
    wakes_on: tuple[str, ...] = ()  # further sources: "mounts", "links", "udev:SUBSYSTEM"
    again_s: float | None = None  # after a run that raised a finding the next run comes after this time
    hung_fault: str = "check_hung"  # the fault if this check does not answer
    raise_after: int = 1  # consecutive runs that must show a finding before it counts
    clear_after: int = 1  # consecutive runs that must not show it before it is gone
    runs_needed: Callable[[Any], int] | None = None  # of its policy: consecutive runs before judge finds anything
    in_prolog: bool = False  # the prolog runs it before each job starts

    def __post_init__(self) -> None:
        for expression in (self.kernel_pattern, self.kernel_wakes):
            if isinstance(expression, str):
                kernel_pattern(expression)
