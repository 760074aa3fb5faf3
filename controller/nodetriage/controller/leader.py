"""Of several controllers on one PostgreSQL one leads: it holds an advisory lock for as long as its connection lives.

The others stand by: they listen nowhere and write nothing. Whoever gets the lock ends the sessions of the last leader
and raises the epoch in the table `leader`; each of its transactions begins by looking whether the epoch is still its
own (the fence), so that one that was deposed and has not noticed yet can record nothing, and so begin nothing.
The leader renews its lease in that table every second, and starts no command without one. Where a leader stands still
with its connection alive, its lease ends, and a standby ends its sessions and takes over.
PostgreSQL's manual: 13.3.5 Advisory Locks.
"""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog
from sqlalchemy import (
    URL,
    BigInteger,
    Connection,
    Engine,
    create_engine,
    inspect,
    literal_column,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from nodetriage.controller.store import database, schema
from nodetriage.controller.store.database import (
    KEEPALIVES,
    LEADER,
    LEADER_LOCK,
    WRITER,
    StoreError,
    create_tables,
    reason_of,
)
from nodetriage.service.notify import Notify

T = TypeVar("T")
_log = structlog.get_logger("leader")

Fence = Callable[[Connection], None]

ASK_EVERY_S = 0.5  # how often a standby tries the lock
PROVE_EVERY_S = 1.0  # how often the leader checks the connection that holds the lock
ANSWER_LIMIT_S = 3.0
DEPOSED = 75  # EX_TEMPFAIL: systemd restarts the controller, which then stands by
LEASE_S = 4.0  # after its last renewal a leader starts no command
TAKE_OVER_S = 6.0  # without a renewal, by the database's clock: more than the lease
LOCK_HOLDER = "nodetriage lock"  # application_name of the connection that holds the lock, or waits for it
_SERVER_OPTIONS = f"{WRITER} -c statement_timeout=3000 -c idle_session_timeout=0"
_END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = :name
"""
_END_HOLDER = """
    SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.application_name = :name
      AND l.locktype = 'advisory' AND l.granted
"""
_NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Deposed(StoreError):
    """Another controller leads: this one must not write any more."""


class Leadership:
    """The lock of the leader. The store calls `fence`, a task waits in `until_lost`."""

    def __init__(self, url: URL) -> None:
        options = {"options": _SERVER_OPTIONS, "connect_timeout": 5, "application_name": LOCK_HOLDER, **KEEPALIVES}
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leader")
        self._connection: Connection | None = None
        self._renewed_s = float("-inf")
        self.epoch = 0
        self.waits_for = ""  # the leader, while this controller stands by

    async def take(self, notify: Notify) -> None:
        """Waits until no other controller leads. Raises StoreError where the database does not answer the first time.

        Later it waits until the database is back. Raises WrongRevision as soon as it finds other tables than ours.
        """
        await self._call(self._check_tables)
        while not await self._led(notify):
            notify.alive()
            await asyncio.sleep(ASK_EVERY_S)
        _log.info("leading", epoch=self.epoch)

    async def _led(self, notify: Notify) -> bool:
        try:
            if await self._call(self._try_lock):
                self.epoch = await self._call(self._begin_epoch)
                self._renewed_s = now_s()
                return True
            holder = f"{await self._call(self._holder)} leads"
            if await self._call(self._end_lapsed):
                _log.warning("the leader's lease has lapsed, its sessions were ended", leader=holder)
        except StoreError as error:
            holder = f"no database: {error}"
            await self._call(self._close)
        if holder != self.waits_for:
            _log.info("standing by", waits_for=holder)
            notify.ready(f"standing by: {holder}")
        self.waits_for = holder
        return False

    async def until_lost(self) -> str:
        """Returns the reason when the lease can no longer be renewed."""
        while True:
            await asyncio.sleep(PROVE_EVERY_S)
            began_s = now_s()
            try:
                await asyncio.wait_for(self._call(self._renew), ANSWER_LIMIT_S)
            except StoreError as error:
                return str(error)
            except TimeoutError:
                return f"PostgreSQL did not answer within {ANSWER_LIMIT_S:g} s"
            self._renewed_s = began_s

    def may_act(self) -> bool:
        """Whether the lease lasts: asked just before a command starts. A process that stood still has none."""
        return now_s() - self._renewed_s < LEASE_S

    def fence(self, connection: Connection) -> None:
        """Runs first in each transaction. Raises Deposed. Until the commit the next leader cannot take the row."""
        epoch = connection.scalar(select(schema.leader.c.epoch).with_for_update(read=True))
        if epoch != self.epoch:
            raise Deposed(f"epoch {epoch} began, this controller's was {self.epoch}")

    def release(self) -> None:
        """Closes the connection, and the lock with it."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except SQLAlchemyError as error:
            raise StoreError(f"database: {reason_of(error)}") from error

    # Below: the thread that alone uses the connection.

    def _try_lock(self) -> bool:
        if self._connection is None:
            self._connection = self._engine.connect()
        return bool(self._connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LEADER_LOCK}))

    def _holder(self) -> str:
        assert self._connection is not None
        if not inspect(self._engine).has_table(schema.leader.name):
            return "another controller"
        return str(self._connection.scalar(select(schema.leader.c.holder)) or "another controller")

    def _check_tables(self) -> None:
        with self._engine.connect() as connection:
            database.check_revision(connection)

    def _end_lapsed(self) -> bool:
        """Ends the session of a leader that has not renewed its lease; True where there was one."""
        assert self._connection is not None
        if not inspect(self._engine).has_table(schema.leader.name):
            return False
        age_us = self._connection.scalar(select(literal_column(_NOW_US, BigInteger) - schema.leader.c.renewed_us))
        if (age_us or 0) < TAKE_OVER_S * 1e6:
            return False
        return bool(self._connection.execute(text(_END_HOLDER), {"name": LOCK_HOLDER}).all())

    def _begin_epoch(self) -> int:
        """A transaction of the last leader whose link is cut would keep the row of the epoch locked."""
        create_tables(self._engine)
        assert self._connection is not None
        self._connection.execute(text(_END_SESSIONS), {"name": LEADER})
        return begin_epoch(self._engine)

    def _renew(self) -> None:
        assert self._connection is not None
        renewed = update(schema.leader).where(schema.leader.c.epoch == self.epoch).values(renewed_us=text(_NOW_US))
        if not self._connection.execute(renewed).rowcount:
            raise Deposed(f"another epoch began, this controller's was {self.epoch}")

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None


def now_s() -> float:
    """It goes on while the machine sleeps, unlike the monotonic clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def begin_epoch(engine: Engine) -> int:
    """The next epoch, with this process as its holder."""
    holder = f"{socket.gethostname()} (pid {os.getpid()})"
    table = schema.leader
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        epoch = (connection.scalar(select(table.c.epoch).with_for_update()) or 0) + 1
        connection.execute(table.delete())
        times = {"since_us": text(_NOW_US), "renewed_us": text(_NOW_US)}
        connection.execute(table.insert().values(id=1, epoch=epoch, holder=holder, **times))
    return epoch


@contextlib.asynccontextmanager
async def leading(url: str, notify: Notify, last_words: Callable[[], None]) -> AsyncIterator[Leadership | None]:
    """Waits to lead, and leads while the block runs. On SQLite the folder's lock is enough: there is no leadership.

    Where the leadership is lost the process ends at once, as by SIGKILL: whatever it is doing must not go on, and what
    it began is found by the next leader. Only `last_words` is called before that, which lets the log be written.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        yield None
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a standby has nothing to reload
    leadership = Leadership(parsed.set(drivername="postgresql+psycopg"))
    try:
        await leadership.take(notify)
        watching = asyncio.create_task(_end_when_lost(leadership, last_words))
        try:
            yield leadership
        finally:
            watching.cancel()
    finally:
        leadership.release()


async def _end_when_lost(leadership: Leadership, last_words: Callable[[], None]) -> None:
    why = await leadership.until_lost()
    _log.critical("leadership lost, ending at once", why=why, epoch=leadership.epoch)
    last_words()  # blocks the loop, so that nothing else runs meanwhile
    os._exit(DEPOSED)
