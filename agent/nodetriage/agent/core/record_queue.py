"""Which kernel records each check has still to judge, and how far the log has been judged for good. No I/O."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodetriage.checks.model import Check, KernelRecord
from nodetriage.checks.model.kernel_line import KernelPattern, any_of, kernel_pattern

PENDING_LIMIT = 5000  # records a check, while it hangs and the kernel storms
TRIES = 3  # runs that may break over the same records before they are given up


@dataclass(frozen=True, slots=True)
class Position:
    """How far this boot's log has been judged. Kept with the verdict, so that a restart neither repeats nor misses.

    All records up to `scanned` are done, but for the checks in `behind`: for those, up to the number given there.
    """

    boot_id: str
    scanned: int = -1
    checks: tuple[str, ...] = ()  # that were looking; a check that is new reads the log from its beginning
    behind: dict[str, int] = field(default_factory=dict)

    def after(self, check: str) -> int:
        return self.behind.get(check, self.scanned) if check in self.checks else -1


@dataclass(slots=True)
class _CheckQueue:
    pattern: KernelPattern
    done: int
    pending: list[KernelRecord] = field(default_factory=list)
    taken: list[KernelRecord] = field(default_factory=list)
    tries: int = 0

    @property
    def first(self) -> int:
        """The oldest record that is not judged."""
        return (self.taken or self.pending)[0].seq


class RecordQueue:
    """One tray of records for each check that judges some; those that records only wake have none."""

    def __init__(self, checks: Iterable[Check[Any, Any]], position: Position) -> None:
        self._boot_id = position.boot_id
        self._trays: dict[str, _CheckQueue] = {}
        self._scanned = position.scanned
        self.lost: dict[str, int] = {}
        self.use(checks, position)

    def use(self, checks: Iterable[Check[Any, Any]], position: Position | None = None) -> None:
        """Changes the set of checks (reload); what they have pending stays."""
        position = position or self.position
        checks = tuple(checks)
        self._wakes = {check.name: kernel_pattern(check.kernel_wakes) for check in checks if check.kernel_wakes}
        old, self._trays = self._trays, {}
        for check in checks:
            if check.kernel_pattern is not None:
                done = position.after(check.name)
                waiting = old.get(check.name) or _CheckQueue(kernel_pattern(check.kernel_pattern), done)
                waiting.pattern = kernel_pattern(check.kernel_pattern)
                self._trays[check.name] = waiting
        # One look at the lines that are nobody's, which is nearly all of them.
        patterns = [*(waiting.pattern for waiting in self._trays.values()), *self._wakes.values()]
        self._any = kernel_pattern(any_of(p.expression for p in patterns)) if _joinable(patterns) else None

    @property
    def read_after(self) -> int | None:
        """The number after which the log must be read; None: from the beginning."""
        first = min((waiting.done for waiting in self._trays.values()), default=self._scanned)
        return None if first < 0 else first

    @property
    def position(self) -> Position:
        behind = {n: max(t.done, t.first - 1) for n, t in self._trays.items() if t.pending or t.taken}
        return Position(self._boot_id, self._scanned, tuple(self._trays), behind)

    def offer(self, record: KernelRecord) -> tuple[str, ...]:
        """Takes a record in; the names of the checks that it wakes."""
        is_new = record.seq > self._scanned
        self._scanned = max(self._scanned, record.seq)
        if self._any is not None and not self._any.match(record.text):
            return ()
        woken = [name for name, pattern in self._wakes.items() if is_new and pattern.match(record.text)]
        for name, waiting in self._trays.items():
            if record.seq > waiting.done and waiting.pattern.match(record.text):
                waiting.pending.append(record)
                self._bound(name, waiting)
                woken.append(name)
        return tuple(woken)

    def waiting(self, check: str) -> bool:
        """Whether there are records that the check has not judged."""
        waiting = self._trays.get(check)
        return waiting is not None and bool(waiting.pending or waiting.taken)

    def take(self, check: str) -> tuple[KernelRecord, ...]:
        """The records that the check's coming run is to judge. Follow with `judged` or `not_judged`."""
        if (waiting := self._trays.get(check)) is None:
            return ()
        waiting.taken, waiting.pending = waiting.pending, []
        return tuple(waiting.taken)

    def judged(self, check: str) -> None:
        if waiting := self._trays.get(check):
            self._finish(waiting)

    def not_judged(self, check: str, blame: bool) -> None:
        """The run did not judge its records. `blame`: it may be the records' doing, so not for ever again."""
        if (waiting := self._trays.get(check)) is None or not waiting.taken:
            return
        waiting.tries += blame
        if waiting.tries >= TRIES:
            self.lost[check] = self.lost.get(check, 0) + len(waiting.taken)
            self._finish(waiting)
        else:
            waiting.pending = waiting.taken + waiting.pending
            waiting.taken = []
            self._bound(check, waiting)

    def take_lost(self) -> dict[str, int]:
        """Records given up since the last call, by check."""
        lost, self.lost = self.lost, {}
        return lost

    def _finish(self, waiting: _CheckQueue) -> None:
        waiting.done = self._scanned if not waiting.pending else max([waiting.done, *(r.seq for r in waiting.taken)])
        waiting.taken, waiting.tries = [], 0

    def _bound(self, name: str, waiting: _CheckQueue) -> None:
        if (over := len(waiting.pending) - PENDING_LIMIT) > 0:
            self.lost[name] = self.lost.get(name, 0) + over
            del waiting.pending[:over]


def _joinable(patterns: Sequence[KernelPattern]) -> bool:
    """Expressions with back references, named groups or inline flags mean something else when joined."""
    odd = re.compile(r"\\[1-9]|\(\?[aiLmsux-]|\(\?P")
    return bool(patterns) and not any(odd.search(p.expression) for p in patterns)
