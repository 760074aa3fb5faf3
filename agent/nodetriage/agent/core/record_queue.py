"""Which kernel records each check has still to judge, and up to which record all are judged. No I/O."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodetriage.checks.model import Check, KernelRecord
from nodetriage.checks.model.kernel_line import KernelPattern, any_of, kernel_pattern
from nodetriage.checks.model.kernel_rules import KernelRules, matcher

PENDING_LIMIT = 5000  # records a check, while it hangs and the kernel storms
TRIES = 3  # runs that may break over the same records before the queue drops them


@dataclass(frozen=True, slots=True)
class Position:
    """How far this boot's log has been judged. Kept with the verdict, so that a restart neither repeats nor misses.

    All records up to `scanned` are judged. The checks in `behind` have judged up to the number given there.
    """

    boot_id: str
    scanned: int = -1
    checks: tuple[str, ...] = ()  # the checks then enabled; a new check reads the log from its beginning
    behind: dict[str, int] = field(default_factory=dict)

    def after(self, check: str) -> int:
        return self.behind.get(check, self.scanned) if check in self.checks else -1


@dataclass(slots=True)
class _CheckQueue:
    pattern: KernelPattern | KernelRules
    done: int
    pending: list[KernelRecord] = field(default_factory=list)
    taken: list[KernelRecord] = field(default_factory=list)
    tries: int = 0

    @property
    def first(self) -> int:
        """The oldest record that is not judged."""
        return (self.taken or self.pending)[0].seq


class RecordQueue:
    """A queue of records for each check that judges some. A check that records only wake has none."""

    def __init__(self, checks: Iterable[Check[Any, Any]], position: Position) -> None:
        self._boot_id = position.boot_id
        self._queues: dict[str, _CheckQueue] = {}
        self._scanned = position.scanned
        self.lost: dict[str, int] = {}
        self.use(checks, position)

    def use(self, checks: Iterable[Check[Any, Any]], position: Position | None = None) -> None:
        """Changes the set of checks (reload). Pending records stay."""
        position = position or self.position
        checks = tuple(checks)
        self._wakes = {check.name: kernel_pattern(check.kernel_wakes) for check in checks if check.kernel_wakes}
        old, self._queues = self._queues, {}
        for check in checks:
            if check.kernel_pattern is not None:
                done = position.after(check.name)
                queue = old.get(check.name) or _CheckQueue(matcher(check.kernel_pattern), done)
                queue.pattern = matcher(check.kernel_pattern)
                self._queues[check.name] = queue
        # Two matches rule out nearly all lines, which concern no check.
        all_patterns = [*(queue.pattern for queue in self._queues.values()), *self._wakes.values()]
        tables = [p for p in all_patterns if isinstance(p, KernelRules)]
        # Checks that put the records of one report together.
        self.joining = frozenset(n for n, q in self._queues.items() if isinstance(q.pattern, KernelRules))
        self._any_table = KernelRules(rule for table in tables for rule in table.rules)
        patterns = [p for p in all_patterns if isinstance(p, KernelPattern)]
        self._any = kernel_pattern(any_of(p.expression for p in patterns)) if _joinable(patterns) else None

    @property
    def read_after(self) -> int | None:
        """The number after which the log must be read; None: from the beginning."""
        first = min((queue.done for queue in self._queues.values()), default=self._scanned)
        return None if first < 0 else first

    @property
    def position(self) -> Position:
        behind = {n: max(t.done, t.first - 1) for n, t in self._queues.items() if t.pending or t.taken}
        return Position(self._boot_id, self._scanned, tuple(self._queues), behind)

    def offer(self, record: KernelRecord) -> tuple[str, ...]:
        """Queues a record; returns the names of the checks that it wakes."""
        is_new = record.seq > self._scanned
        self._scanned = max(self._scanned, record.seq)
        if self._any is not None and not self._any.match(record.text) and not self._any_table.match(record.text):
            return ()
        woken = [name for name, pattern in self._wakes.items() if is_new and pattern.match(record.text)]
        for name, queue in self._queues.items():
            if record.seq > queue.done and queue.pattern.match(record.text):
                queue.pending.append(record)
                self._bound(name, queue)
                woken.append(name)
        return tuple(woken)

    def waiting(self, check: str) -> bool:
        """Whether the check has records to judge."""
        queue = self._queues.get(check)
        return queue is not None and bool(queue.pending or queue.taken)

    def take(self, check: str) -> tuple[KernelRecord, ...]:
        """The records that the next run of the check judges. Call `judged` or `not_judged` after it."""
        if (queue := self._queues.get(check)) is None:
            return ()
        queue.taken, queue.pending = queue.pending, []
        return tuple(queue.taken)

    def judged(self, check: str) -> None:
        if queue := self._queues.get(check):
            self._finish(queue)

    def not_judged(self, check: str, blame: bool) -> None:
        """The run did not judge its records. `blame`: the records may be the cause, so they get TRIES runs at most."""
        if (queue := self._queues.get(check)) is None or not queue.taken:
            return
        queue.tries += blame
        if queue.tries >= TRIES:
            self.lost[check] = self.lost.get(check, 0) + len(queue.taken)
            self._finish(queue)
        else:
            queue.pending = queue.taken + queue.pending
            queue.taken = []
            self._bound(check, queue)

    def take_lost(self) -> dict[str, int]:
        """Records dropped since the last call, by check."""
        lost, self.lost = self.lost, {}
        return lost

    def _finish(self, queue: _CheckQueue) -> None:
        queue.done = self._scanned if not queue.pending else max([queue.done, *(r.seq for r in queue.taken)])
        queue.taken, queue.tries = [], 0

    def _bound(self, name: str, queue: _CheckQueue) -> None:
        if (over := len(queue.pending) - PENDING_LIMIT) > 0:
            self.lost[name] = self.lost.get(name, 0) + over
            del queue.pending[:over]


def _joinable(patterns: Sequence[KernelPattern]) -> bool:
    """Expressions with back references, named groups or inline flags mean something else when joined."""
    odd = re.compile(r"\\[1-9]|\(\?[aiLmsux-]|\(\?P")
    return bool(patterns) and not any(odd.search(p.expression) for p in patterns)
