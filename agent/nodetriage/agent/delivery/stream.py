"""The stream to a controller: hello and resume, then events and heartbeats up, acks and commands down."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from nodetriage.agent.core.aligned_timer import AlignedTimer
from nodetriage.agent.delivery.connection import Connection, Ended, Identity, Refused, anonymous, connect
from nodetriage.agent.delivery.event import numbered
from nodetriage.agent.delivery.spool import COMMIT_LIMIT_S, Spool, Stored
from nodetriage.agent.waiting import woken_or_due
from nodetriage.service.seq_range import SeqRange
from nodetriage.v1 import health_pb2 as pb

BATCH_EVENTS = 100  # one batch of the backlog waits for its ack; live events never wait
WELCOME_LIMIT_S = 10.0
ACK_LIMIT_S = 60.0  # a controller that acknowledges nothing for so long does not work: try the next
BACK_OFF_S = (1.0, 30.0)  # first and largest span of the random wait


class NoAnswer(Exception):
    """The controller is connected but does not answer."""


@dataclass(frozen=True, slots=True)
class Node:
    """What Hello says about this node."""

    name: str
    boot_id: str
    version: str
    profile: str


class Stream:
    """`heartbeat` makes the present one, whole where a stream begins, with the interval that it announces; `command`
    does what a controller asks; `hook_word` takes its word to the Slurm hooks, and who said it; `has_job` says whether
    a job may be on this node, which then sends more heartbeats. All belong to the daemon.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        node: Node,
        spool: Spool,
        *,
        heartbeat: Callable[[bool, float], pb.Heartbeat],
        heartbeat_s: float,
        command: Callable[[pb.Command], Awaitable[pb.CommandResult]],
        hook_word: Callable[[pb.HookAuthority, str], None] = lambda word, by: None,
        has_job: Callable[[], bool] = lambda: True,
        identify: Callable[[str], Awaitable[Identity]] = anonymous,
        back_off_s: tuple[float, float] = BACK_OFF_S,
        timer: AlignedTimer | None = None,
        idle_why: str = "no controller is set",
    ) -> None:
        self._timer = timer or AlignedTimer()
        self.state = idle_why if not addresses else "not connected yet"
        self.connected = False
        self.addresses = addresses
        self._node = node
        self._spool = spool
        self._heartbeat = heartbeat
        self._heartbeat_s = heartbeat_s
        self._command = command
        self._hook_word = hook_word
        self._has_job = has_job
        self._beat_now = False
        self._identify = identify
        self._back_off_s = back_off_s
        self._wake = asyncio.Event()
        spool.on_durable = self._wake.set
        self._log = structlog.get_logger()

    def beat(self) -> None:
        """Sends a heartbeat now, unless this node gives enough of them already: a job begins here."""
        self._beat_now = True
        self._wake.set()

    async def run(self) -> None:
        """Connects and serves, again and again, until cancelled."""
        if not self.addresses:
            await asyncio.Event().wait()  # the agent works alone
        failures = turn = 0
        while True:
            address = self.addresses[turn % len(self.addresses)]
            again_in_s: float | None = None
            try:
                await self._serve(address)
                why = "the controller closed the stream"
            except Ended as end:
                why, again_in_s = str(end), end.again_in_s
            except (Refused, NoAnswer, OSError, TimeoutError) as error:
                why = str(error) or "no answer in time"
            failures = 0 if self.connected else failures + 1
            self.connected = False
            turn += 1
            wait_s = next_wait_s(failures, self._back_off_s) if again_in_s is None else again_in_s
            self.state = f"not connected: {address}: {why}"
            self._log.warning("controller lost", address=address, why=why, again_in_s=round(wait_s, 1))
            await asyncio.sleep(wait_s)

    async def _serve(self, address: str) -> None:
        async with connect(address, await self._identify(address)) as line:
            async with asyncio.timeout(WELCOME_LIMIT_S):
                welcome = await self._greet(line)
            self.connected = True
            self.state = f"connected to {address}"
            self._log.info("controller connected", address=address, version=welcome.controller_version)
            session = _Session(self._spool, line)
            every_s = welcome.heartbeat_every_ms / 1000 or self._heartbeat_s
            idle_every_s = max(every_s, welcome.idle_heartbeat_every_ms / 1000)
            try:
                async with asyncio.TaskGroup() as tasks:
                    writer = tasks.create_task(self._write(session, every_s, idle_every_s))
                    await self._read(session, tasks)
                    writer.cancel()
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None

    async def _greet(self, line: Connection) -> pb.Welcome:
        node = self._node
        hello = pb.Hello(
            protocol=1,
            node=node.name,
            boot_id=node.boot_id,
            agent_version=node.version,
            profile=node.profile,
            unacked_events=self._spool.depth,
            acked_seq=self._spool.acked_seq,
        )
        await line.write(pb.AgentMessage(hello=hello))
        message = await line.read()
        if message is None or message.WhichOneof("body") != "welcome":
            raise NoAnswer("the controller did not begin with a welcome")
        if moved := self._spool.agree(ranges(message.welcome.stored)):
            self._log.warning("events renumbered", by=moved, why="the controller knows later ones of this boot")
        return message.welcome

    async def _read(self, session: "_Session", tasks: asyncio.TaskGroup) -> None:
        while (message := await session.line.read()) is not None:
            if message.HasField("ack"):
                session.acked(ranges(message.ack.ranges))
                self._wake.set()
            elif message.HasField("command"):
                tasks.create_task(self._obey(session, message.command))
            elif message.HasField("open_set"):
                session.open_set_wanted = True
                self._wake.set()
            elif message.HasField("hooks") and message.hooks.version > session.hooks_version:
                session.hooks_version = message.hooks.version
                self._hook_word(message.hooks, session.line.peer)

    async def _obey(self, session: "_Session", command: pb.Command) -> None:
        session.results.append(await self._command(command))
        self._wake.set()

    async def _write(self, session: "_Session", job_every_s: float, idle_every_s: float) -> None:
        """The only writer of the stream: first results, then live events, then the backlog; heartbeats when due."""
        due_s, every_s = time.monotonic(), idle_every_s
        going_on = whole = True
        while going_on:
            self._wake.clear()
            if session.open_set_wanted:
                session.open_set_wanted, whole, due_s = False, True, time.monotonic()
            begins_job, self._beat_now = self._beat_now and every_s > job_every_s, False
            if time.monotonic() >= due_s or begins_job:
                every_s = job_every_s if self._has_job() else idle_every_s
                going_on = await session.line.write(pb.AgentMessage(heartbeat=self._heartbeat(whole, every_s)))
                whole = False
                due_s = time.monotonic() + self._timer.until_next_s(every_s, time.monotonic())
            session.check_acks()
            if message := session.next():
                going_on = await session.line.write(message)
                continue
            # An event that is not on disk yet may be sent a moment later, and nothing else wakes this task then.
            wait_s = due_s - time.monotonic()
            await woken_or_due(self._wake, min(wait_s, COMMIT_LIMIT_S) if session.waits_for_disk else wait_s)


class _Session:
    """What one connection has sent, and what the controller has acknowledged."""

    def __init__(self, spool: Spool, line: Connection) -> None:
        self.line = line
        self.results: deque[pb.CommandResult] = deque()
        self.open_set_wanted = False  # the controller asks for it
        self.hooks_version = 0  # of the newest word to the hooks that this stream brought
        self._spool = spool
        backlog, self._live_seq = spool.backlog()
        self._backlog = deque(backlog)
        self._sent_old: tuple[Stored, ...] = ()  # the last batch of the backlog
        self._unacked: dict[tuple[str, int], Stored] = {}
        self._acked_s = time.monotonic()

    def acked(self, acked: Sequence[SeqRange]) -> None:
        self._spool.ack(acked)
        self._unacked = {k: e for k, e in self._unacked.items() if not e.gone}
        self._acked_s = time.monotonic()

    def check_acks(self) -> None:
        """Raises NoAnswer if the controller takes events and does not acknowledge them."""
        if not self._unacked:
            self._acked_s = time.monotonic()
        elif time.monotonic() - self._acked_s > ACK_LIMIT_S:
            raise NoAnswer(f"no ack for {ACK_LIMIT_S:.0f} s")

    @property
    def waits_for_disk(self) -> bool:
        """Whether events of this run wait only because they are not on disk yet."""
        return self._spool.next_seq - 1 > self._live_seq

    def next(self) -> pb.AgentMessage | None:
        if self.results:
            return pb.AgentMessage(result=self.results.popleft())
        batch = self._spool.since(self._live_seq, BATCH_EVENTS)
        if batch:
            self._live_seq = batch[-1].seq
        elif all(event.gone for event in self._sent_old):
            batch = self._sent_old = self._old()
        if not batch:
            return None
        self._unacked.update({(e.boot_id, e.seq): e for e in batch})
        return pb.AgentMessage(events=pb.EventBatch(events=[numbered(e.body, e.seq) for e in batch]))

    def _old(self) -> tuple[Stored, ...]:
        batch: list[Stored] = []
        while self._backlog and len(batch) < BATCH_EVENTS:
            event = self._backlog.popleft()
            if not event.gone:
                batch.append(event)
        return tuple(batch)


def ranges(wire: Sequence[pb.SeqRange]) -> tuple[SeqRange, ...]:
    """From the wire."""
    return tuple(SeqRange(r.boot_id, r.first_seq, r.last_seq) for r in wire)


def next_wait_s(failures: int, back_off_s: tuple[float, float] = BACK_OFF_S) -> float:
    """A random part of a span that doubles, so that not all nodes meet a restarted controller at once."""
    first, largest = back_off_s
    return random.uniform(0, min(largest, first * 2 ** min(failures, 16)))
