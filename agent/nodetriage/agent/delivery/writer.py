"""The spool's file: SQLite in WAL mode. A thread of its own writes it, and the event loop never waits for that.

Transactions with events are synchronous=FULL, the others NORMAL (docs/decisions/0020-spool-on-disk.md).
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodetriage.service.crashpoint import passing

QUEUE_LIMIT = 2000  # writes that may wait for the disk; after more, the file is written anew when the disk works
RETRY_S = 10.0  # after a failed write

_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
  place INTEGER PRIMARY KEY AUTOINCREMENT, boot_id TEXT NOT NULL, seq INTEGER NOT NULL,
  body BLOB NOT NULL, routine INTEGER NOT NULL, UNIQUE (boot_id, seq)) STRICT;
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One event on disk."""

    boot_id: str
    seq: int
    body: bytes
    routine: bool
    place: int = 0


@dataclass(frozen=True, slots=True)
class Write:
    """One transaction. `whole` replaces everything in the file."""

    insert: tuple[Row, ...] = ()
    delete: tuple[tuple[str, int], ...] = ()
    kept: Mapping[str, bytes] = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier run of the agent left."""

    rows: tuple[Row, ...] = ()
    values: Mapping[str, bytes] = field(default_factory=dict)


class SpoolWriter:
    """Calls all four in the event loop: `snapshot` gives everything that should be on disk, `committed` gets the rows
    that are, `adopt` gets what an earlier run left if that could be read only after the start, and `failed` says that
    there is new `trouble`.
    """

    def __init__(
        self,
        path: Path,
        snapshot: Callable[[], Write],
        committed: Callable[[tuple[Row, ...]], None],
        adopt: Callable[[Kept], None],
        failed: Callable[[], None],
    ) -> None:
        self.trouble = ""
        self._path = path
        self._snapshot = snapshot
        self._committed = committed
        self._adopt = adopt
        self._tell_failed = failed
        self._read = False  # whether the rows of an earlier run were read
        self._late: Kept | None = None
        self._db: sqlite3.Connection | None = None
        self._queue: list[Write] = []
        self._wake = threading.Condition()
        self._behind = False  # writes were lost: the next one must be whole
        self._closing = False
        self._failed_s = 0.0
        self._thread = threading.Thread(target=self._work, name="spool writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> Kept:
        """Reads the file once, before the loop serves anything."""
        try:
            return self._first(self._open())
        except sqlite3.DatabaseError as error:
            if _is_corrupt(error):
                self._put_aside(error)
                with contextlib.suppress(sqlite3.Error, OSError):
                    return self._first(self._open())
            self._fail(error)
        except OSError as error:
            self._fail(error)
        return Kept()

    def _first(self, kept: Kept) -> Kept:
        self._read = True
        return kept

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def write(self, write: Write) -> None:
        """Queues a write; returns at once."""
        if not (write.insert or write.delete or write.kept):
            return
        with self._wake:
            if self._behind:
                return  # a whole write will follow
            if len(self._queue) >= QUEUE_LIMIT:
                self._queue.clear()
                self._behind = True
            else:
                self._queue.append(write)
            self._wake.notify()

    def close(self, limit_s: float) -> bool:
        """Commits the waiting writes; False if the disk did not take them within `limit_s`."""
        with self._wake:
            if self._behind:
                self._queue, self._behind = [self._snapshot()], False
            self._closing = True
            self._wake.notify()
        if not self._thread.ident:
            return False
        self._thread.join(limit_s)
        return not self._thread.is_alive() and not self.trouble

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._ready():
                    self._wake.wait(self._pause())
                closing = self._closing
                writes, self._queue = self._queue, []
            if self._is_open():
                if self._behind and (whole := self._fresh()):
                    writes = [whole]
                if writes:
                    self._commit(writes)
            if closing:
                break
        if self._db:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()

    def _ready(self) -> bool:
        if self._closing:
            return True
        return time.monotonic() >= self._failed_s + RETRY_S if self._behind else bool(self._queue)

    def _pause(self) -> float | None:
        return max(0.01, self._failed_s + RETRY_S - time.monotonic()) if self._behind else None

    def _fresh(self) -> Write | None:
        """A whole write with the loop's present state. Later writes follow it in the queue."""
        assert self._loop is not None
        got: list[Write] = []
        done = threading.Event()

        def take() -> None:
            with self._wake:
                self._queue.clear()
                self._behind = False
            if self._late is not None:
                self._adopt(self._late)
                self._late, self._read = None, True
            got.append(self._snapshot())
            done.set()

        try:
            self._loop.call_soon_threadsafe(take)
        except RuntimeError:  # the loop is closed
            return None
        done.wait(10.0)  # only a loop that ends is so late
        return got[0] if got else None

    def _is_open(self) -> bool:
        if self._db is None:
            try:
                kept = self._open()
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
                return False
            if not self._read:
                self._late = kept
        return True

    def _failed(self, error: Exception) -> None:
        if isinstance(error, sqlite3.DatabaseError) and _is_corrupt(error):
            self._put_aside(error)
            self._failed_s = -RETRY_S  # try again at once, with a new file
        else:
            self._fail(error)
        with self._wake:
            self._behind = True

    def _commit(self, writes: list[Write]) -> None:
        try:
            passing("spool.before_commit")
            self._apply(writes)
            passing("spool.after_commit")
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return
        self.trouble = ""
        rows = tuple(row for write in writes for row in write.insert)
        if rows and self._loop and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._committed, rows)

    def _apply(self, writes: list[Write]) -> None:
        db = self._db
        assert db is not None
        has_events = any(w.insert for w in writes)
        db.execute(f"PRAGMA synchronous = {'FULL' if has_events else 'NORMAL'}")
        with db:
            db.execute("BEGIN IMMEDIATE")
            for write in writes:
                if write.whole:
                    db.execute("DELETE FROM event")
                    db.execute("DELETE FROM kept")
                db.executemany("DELETE FROM event WHERE boot_id = ? AND seq = ?", write.delete)
                db.executemany(
                    "INSERT OR REPLACE INTO event (boot_id, seq, body, routine) VALUES (?, ?, ?, ?)",
                    [(r.boot_id, r.seq, r.body, r.routine) for r in write.insert],
                )
                db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", write.kept.items())

    def _open(self) -> Kept:
        db = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            self._path.chmod(0o600)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA cache_size = -256")
            db.execute("PRAGMA journal_size_limit = 1048576")
            db.executescript(_SCHEMA)
            rows = db.execute("SELECT boot_id, seq, body, routine, place FROM event ORDER BY place").fetchall()
            values = dict(db.execute("SELECT key, value FROM kept").fetchall())
        except BaseException:
            db.close()
            raise
        self._db = db
        return Kept(tuple(Row(b, s, body, bool(r), p) for b, s, body, r, p in rows), values)

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        """Renames a corrupt file: it is evidence."""
        if self._db:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None
        aside = self._path.with_name(f"{self._path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        with contextlib.suppress(OSError):
            self._path.rename(aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(OSError):
                Path(f"{self._path}{suffix}").rename(f"{aside}{suffix}")
        self.trouble = f"{self._path.name} was corrupt ({error}); it is kept as {aside.name}, for inspection"

    def _fail(self, error: Exception) -> None:
        was, self.trouble = self.trouble, f"{self._path}: {error}"
        self._failed_s = time.monotonic()
        self._behind = True
        if self._db:  # after a full or read-only disk a new connection is needed
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None
        if self._loop and not was:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._tell_failed)


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    """SQLITE_CORRUPT, SQLITE_NOTADB (https://sqlite.org/rescode.html); a schema that is not ours counts too."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such column" in str(error)
