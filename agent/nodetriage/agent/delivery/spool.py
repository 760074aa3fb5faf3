"""The events that no controller has yet: in memory to send them, in SQLite to survive a restart.

Only the thread in writer.py uses the disk, so a full, frozen or broken disk stops neither checks nor delivery. A
restart of the agent would then lose these events; the agent reports that as a finding.
"""

import bisect
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodetriage.agent.delivery.event import Unnumbered, is_loss
from nodetriage.agent.delivery.writer import Kept, Row, SpoolWriter, Write
from nodetriage.service.crashpoint import passing
from nodetriage.service.seq_range import SeqRange

OVERHEAD_BYTES = 200  # of an event in memory and on disk, beside its body
COMMIT_LIMIT_S = 1.0  # an event whose commit takes longer is sent before it is on disk


@dataclass(slots=True)
class Stored:
    """A numbered event. `made_s` is monotonic; 0 for an event of an earlier run of the agent."""

    boot_id: str
    seq: int
    body: bytes
    routine: bool
    made_s: float = 0.0
    durable: bool = False
    gone: bool = False  # acknowledged or dropped


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many events the spool dropped since the last question because it was full."""

    routine: int
    faults: int


class Spool:
    """Belongs to the event loop, where it calls `on_trouble` when commits begin to fail.

    `on_durable` is called after each commit; the stream sets it.
    """

    def __init__(
        self,
        folder: Path,
        boot_id: str,
        max_bytes: int,
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        self._boot_id = boot_id
        self._max_bytes = max_bytes
        self.on_durable: Callable[[], None] = lambda: None
        path = folder / "spool.sqlite"
        self._writer = SpoolWriter(path, self._snapshot, self._committed, self._adopt, on_trouble)
        self._events: list[Stored] = []  # oldest first: earlier boots, then this one by seq
        self._bytes = 0
        self._next_seq = 1
        self._base_seq = 0
        self._acked_seq = 0
        self._confirmed = False
        self._kept: dict[str, bytes] = {}
        self._dropped = Dropped(0, 0)

    def open(self) -> None:
        """Reads the events of an earlier run. Never raises: an unreadable file is set aside, and `trouble` says so."""
        kept = self._writer.open()
        self._load(kept)
        self._writer.start()
        # Numbers from here on are provisional until a controller has said which events it has (see `agree`).
        self._write(Write(kept={"base": str(self._base_seq).encode(), "confirmed": b"0"}))

    def close(self, limit_s: float) -> bool:
        """Commits the rest; False if the disk did not take it in time."""
        return self._writer.close(limit_s)

    @property
    def trouble(self) -> str:
        """Why events are not on disk now; empty where they are."""
        return self._writer.trouble

    @property
    def depth(self) -> int:
        return len(self._events)

    @property
    def next_seq(self) -> int:
        return self._next_seq

    @property
    def acked_seq(self) -> int:
        """The highest number of this boot that a controller acknowledged, as far as this spool remembers."""
        return self._acked_seq

    def kept(self, key: str) -> bytes | None:
        return self._kept.get(key)

    def kept_under(self, prefix: str) -> dict[str, bytes]:
        """All values whose keys begin with `prefix`, by the rest of the key."""
        return {key.removeprefix(prefix): value for key, value in self._kept.items() if key.startswith(prefix)}

    def append(self, events: Iterable[Unnumbered], keep: Mapping[str, bytes] | None = None) -> tuple[int, ...]:
        """Numbers the events and writes them, with `keep`, in one transaction. Returns their numbers at once."""
        added = []
        for event in events:
            stored = Stored(event.boot_id, self._next_seq, event.body, event.routine, time.monotonic())
            self._next_seq += 1
            self._events.append(stored)
            self._bytes += len(event.body) + OVERHEAD_BYTES
            added.append(stored)
        self._kept.update(keep or {})
        rows = tuple(_row(e) for e in added)
        self._write(Write(insert=rows, kept=dict(keep or {})))
        self._bound()
        return tuple(e.seq for e in added)

    def backlog(self) -> tuple[tuple[Stored, ...], int]:
        """The events that may be sent, oldest first, and the number after which `since` continues."""
        settled = tuple(e for e in self._events if self._may_go(e))
        waiting = next((e.seq for e in self._events if not self._may_go(e)), self._next_seq)
        return tuple(e for e in settled if e.boot_id != self._boot_id or e.seq < waiting), waiting - 1

    def since(self, seq: int, limit: int) -> tuple[Stored, ...]:
        """The events of this boot numbered above `seq`, as far as they may be sent."""
        start = bisect.bisect_right(self._events, (1, seq), key=lambda e: (int(e.boot_id == self._boot_id), e.seq))
        some = self._events[start : start + limit]
        ready = next((i for i, e in enumerate(some) if not self._may_go(e)), len(some))
        return tuple(some[:ready])

    def _may_go(self, event: Stored) -> bool:
        """On disk first, or a killed agent could reuse the number; but a stuck disk must not silence the agent."""
        return event.durable or bool(self.trouble) or time.monotonic() - event.made_s > COMMIT_LIMIT_S

    def ack(self, ranges: Iterable[SeqRange]) -> int:
        """Removes the events that a controller has on its disk, and returns how many these are."""
        spans = [(r.boot_id, r.first, r.last) for r in ranges]
        if not spans:
            return 0
        passing("spool.before_ack")
        ours = (min(last, self._next_seq - 1) for boot_id, _, last in spans if boot_id == self._boot_id)
        self._acked_seq = max(self._acked_seq, *ours, 0)
        gone = {id(e) for e in self._events if any(b == e.boot_id and f <= e.seq <= n for b, f, n in spans)}
        self._remove(gone)
        return len(gone)

    def agree(self, stored: Iterable[SeqRange]) -> int:
        """Compares with the events of this boot that the controller has. Returns by how much numbers were moved up.

        If the controller has more than this spool knew at the start of the agent, the spool's file was lost (deleted,
        corrupt, or not written when the agent was killed). Events since then must not have the same numbers.
        """
        ranges = [r for r in stored if r.boot_id == self._boot_id]
        moved = 0
        if not self._confirmed:
            self._confirmed = True
            moved = max(0, max((r.last for r in ranges), default=0) - self._base_seq)
            if moved:
                self._move_up(moved)
            self._write(Write(kept={"confirmed": b"1"}))
        self.ack(ranges)
        return moved

    def take_dropped(self) -> Dropped:
        """How many events were dropped since the last call. The caller makes the LOST event."""
        dropped, self._dropped = self._dropped, Dropped(0, 0)
        return dropped

    @property
    def has_dropped(self) -> bool:
        return self._dropped != Dropped(0, 0)

    def _load(self, kept: Kept) -> None:
        self._kept = dict(kept.values)
        rows = sorted(kept.rows, key=lambda r: (r.boot_id == self._boot_id, r.place))
        self._events = [Stored(r.boot_id, r.seq, r.body, r.routine, durable=True) for r in rows]
        self._bytes = sum(len(e.body) + OVERHEAD_BYTES for e in self._events)
        last_seq = 0
        if self._kept.get("boot_id") == self._boot_id.encode():
            last_seq = int(self._kept.get("last_seq", b"0"))
            self._acked_seq = int(self._kept.get("acked_seq", b"0"))
            confirmed = self._kept.get("confirmed") == b"1"
            self._base_seq = last_seq if confirmed else int(self._kept.get("base", b"0"))
        self._next_seq = last_seq + 1

    def _adopt(self, kept: Kept) -> None:
        """Adds events of an earlier run that could be read only now. Those whose number is taken get a new one."""
        given = {(e.boot_id, e.seq) for e in self._events}
        if kept.values.get("boot_id") == self._boot_id.encode():
            self._next_seq = max(self._next_seq, int(kept.values.get("last_seq", b"0")) + 1)
        for row in sorted(kept.rows, key=lambda r: r.place):
            seq = row.seq
            if (row.boot_id, seq) in given:
                seq, self._next_seq = self._next_seq, self._next_seq + 1
            self._events.append(Stored(row.boot_id, seq, row.body, row.routine))
            self._bytes += len(row.body) + OVERHEAD_BYTES
        self._events.sort(key=lambda e: (e.boot_id == self._boot_id, e.seq))
        self._kept = {**kept.values, **self._kept, "last_seq": str(self._next_seq - 1).encode()}

    def _move_up(self, by: int) -> None:
        provisional = [e for e in self._events if e.boot_id == self._boot_id and e.seq > self._base_seq]
        self._write(Write(delete=tuple((e.boot_id, e.seq) for e in provisional)))
        for event in provisional:
            event.seq += by
        self._next_seq += by
        self._write(Write(insert=tuple(_row(e) for e in provisional)))

    def _bound(self) -> None:
        """Drops events where the spool is full: routine ones first, then faults, oldest first; never LOST events."""
        if self._bytes <= self._max_bytes:
            return
        gone: set[int] = set()
        counts = {True: 0, False: 0}
        excess = self._bytes - int(self._max_bytes * 0.95)  # some room, or each new event would come here
        for routine in (True, False):
            for event in self._events:
                if excess <= 0:
                    break
                if event.routine is routine and (routine or not is_loss(event.body)):
                    gone.add(id(event))
                    counts[routine] += 1
                    excess -= len(event.body) + OVERHEAD_BYTES
        self._dropped = Dropped(self._dropped.routine + counts[True], self._dropped.faults + counts[False])
        self._remove(gone)

    def _remove(self, gone: set[int]) -> None:
        if not gone:
            return
        removed = [e for e in self._events if id(e) in gone]
        for event in removed:
            event.gone = True
        self._events = [e for e in self._events if not e.gone]
        self._bytes -= sum(len(e.body) + OVERHEAD_BYTES for e in removed)
        self._write(Write(delete=tuple((e.boot_id, e.seq) for e in removed)))

    def _write(self, write: Write) -> None:
        position = {
            "boot_id": self._boot_id.encode(),
            "last_seq": str(self._next_seq - 1).encode(),
            "acked_seq": str(self._acked_seq).encode(),
        }
        self._kept.update(write.kept)
        self._kept.update(position)
        kept = {**write.kept, **position} if write.insert or write.kept else {}
        self._writer.write(Write(write.insert, write.delete, kept))

    def _snapshot(self) -> Write:
        """Everything that should be on disk. The writer asks for it after it has missed writes."""
        return Write(insert=tuple(_row(e) for e in self._events), kept=dict(self._kept), whole=True)

    def _committed(self, rows: tuple[Row, ...]) -> None:
        keys = {(r.boot_id, r.seq) for r in rows}
        for event in reversed(self._events):
            if not keys:
                break
            if (key := (event.boot_id, event.seq)) in keys:
                event.durable = True
                keys.discard(key)
        self.on_durable()


def _row(event: Stored) -> Row:
    return Row(event.boot_id, event.seq, event.body, event.routine)
