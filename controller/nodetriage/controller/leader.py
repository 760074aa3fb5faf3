"""Of several controllers on one PostgreSQL one leads: it holds an advisory lock for as long as its connection lives.

The others stand by: they listen nowhere and write nothing. Whoever gets the lock raises the epoch in the table
`leader`; each of its transactions begins by looking whether the epoch is still its own (the fence), so that one that
was deposed and has not noticed yet can record nothing, and so begin nothing.
PostgreSQL's manual: 13.3.5 Advisory Locks.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog
from sqlalchemy import URL, Connection, Engine, create_engine, inspect, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from nodetriage.controller.store import schema
from nodetriage.controller.store.database import LEADER_LOCK, StoreError, create_tables, reason_of
from nodetriage.service.notify import Notify

T = TypeVar("T")
_log = structlog.get_logger("leader")

Fence = Callable[[Connection], None]

ASK_EVERY_S = 0.5  # how often a standby tries the lock
PROVE_EVERY_S = 1.0  # how often the leader checks the connection that holds the lock
ANSWER_LIMIT_S = 3.0
DEPOSED = 75  # EX_TEMPFAIL: systemd restarts the controller, which then stands by
# So the server soon notices that the leader's machine is gone, and the leader that the server's is.
_SERVER_OPTIONS = (
    "-c tcp_keepalives_idle=3 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3 -c tcp_user_timeout=5000 "
    "-c statement_timeout=3000 -c idle_session_timeout=0"
)
_CLIENT_OPTIONS = {"keepalives_idle": 3, "keepalives_interval": 1, "keepalives_count": 3, "tcp_user_timeout": 5000}


class Deposed(StoreError):
    """Another controller leads: this one must not write any more."""


class Leadership:
    """The lock of the leader. The store calls `fence`, a task waits in `until_lost`."""

    def __init__(self, url: URL) -> None:
        options = {"options": _SERVER_OPTIONS, "connect_timeout": 5, **_CLIENT_OPTIONS}
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leader")
        self._connection: Connection | None = None
        self.epoch = 0
        self.waits_for = ""  # the leader, while this controller stands by

    async def take(self, notify: Notify) -> None:
        """Waits until no other controller leads. Raises StoreError where the database does not answer."""
        while not await self._call(self._try_lock):
            holder = await self._call(self._holder)
            if holder != self.waits_for:
                _log.info("standing by", leader=holder)
                notify.ready(f"standing by: {holder} leads")
            self.waits_for = holder
            notify.alive()
            await asyncio.sleep(ASK_EVERY_S)
        self.epoch = await self._call(self._begin_epoch)
        _log.info("leading", epoch=self.epoch)

    async def until_lost(self) -> str:
        """Returns the reason when the connection that holds the lock no longer answers."""
        while True:
            await asyncio.sleep(PROVE_EVERY_S)
            try:
                await asyncio.wait_for(self._call(self._prove), ANSWER_LIMIT_S)
            except StoreError as error:
                return str(error)
            except TimeoutError:
                return f"PostgreSQL did not answer within {ANSWER_LIMIT_S:g} s"

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

    def _begin_epoch(self) -> int:
        create_tables(self._engine)
        return begin_epoch(self._engine)

    def _prove(self) -> None:
        assert self._connection is not None
        self._connection.execute(text("SELECT 1"))

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()


def begin_epoch(engine: Engine) -> int:
    """The next epoch, with this process as its holder."""
    holder = f"{socket.gethostname()} (pid {os.getpid()})"
    table = schema.leader
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        epoch = (connection.scalar(select(table.c.epoch).with_for_update()) or 0) + 1
        now_us = text("(extract(epoch FROM now()) * 1000000)::bigint")
        connection.execute(table.delete())
        connection.execute(table.insert().values(id=1, epoch=epoch, holder=holder, since_us=now_us))
    return epoch


@contextlib.asynccontextmanager
async def leading(url: str, notify: Notify, last_words: Callable[[], None]) -> AsyncIterator[Fence | None]:
    """Waits to lead, and leads while the block runs. On SQLite the folder's lock is enough: there is no fence.

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
            yield leadership.fence
        finally:
            watching.cancel()
    finally:
        leadership.release()


async def _end_when_lost(leadership: Leadership, last_words: Callable[[], None]) -> None:
    why = await leadership.until_lost()
    _log.critical("leadership lost, ending at once", why=why, epoch=leadership.epoch)
    last_words()  # blocks the loop, so that nothing else runs meanwhile
    os._exit(DEPOSED)
